import { expect, test } from "vitest";
import { actionsOf, summaryOf, unexplained } from "../src/actions.ts";
import { resultOf } from "../src/results.ts";
import type { CommandView, Outcome } from "../src/wire.ts";

const EVENT_NS = 1_700_000_000e9;

/** Of a node that left rail0 so many milliseconds after the event, and confirmed two pairs. */
const outcome = (moved_ms: number, more: Partial<Outcome> = {}): Outcome => ({
  id: `o${moved_ms}`,
  verb: "reroute",
  status: "done",
  armed: false,
  reason: "",
  started_ns: EVENT_NS + moved_ms * 1e6,
  moved_ns: EVENT_NS + moved_ms * 1e6,
  confirmed_ns: EVENT_NS + 34e6,
  expected: 2,
  confirmations: [1, 2],
  away: ["rail0"],
  back: [],
  placements: [],
  ...more,
});
const command = (node: string, moved_ms: number, more: Partial<Outcome> = {}): CommandView => {
  const last = outcome(moved_ms, more);
  const { verb, status, armed } = last;
  return { id: `c${moved_ms}`, verb, node, at_ns: last.started_ns, status, armed, outcomes: [last] };
};
const pending: CommandView = { ...command("node0", 0), status: "pending", outcomes: [] };
const said = (commands: CommandView[], earlier: CommandView[] = []) =>
  resultOf(summaryOf(actionsOf(commands, earlier), "reroute"), EVENT_NS).join(" ");
const armed = { armed: true };
const already = { status: "already" };

test("the last node to move decides when all have, and pairs are summed", () => {
  const commands = [command("node1", 5, armed), command("node0", 7), command("node2", 9, { verb: "restore" })];

  expect(summaryOf(actionsOf(commands), "reroute")).toEqual({
    verb: "reroute",
    nodes: 2,
    unasked: 1,
    came: "moved",
    moved_ns: EVENT_NS + 7e6,
    confirmed: 4,
    expected: 4,
    confirmed_ns: EVENT_NS + 34e6,
    failed: 0,
  });
});

test("a command without an outcome has moved nothing", () => {
  expect(actionsOf([pending])[0]).toMatchObject({ status: "pending", moved_ns: 0, confirmed: 0 });
  expect(said([pending])).toBe("Not moved away yet on 1 node");
});

test("an order of an extension's verb is told by that", () => {
  const told = (more: Partial<Outcome>) => {
    const mine = command("node0", 7, { verb: "mark", expected: 1, confirmations: [], ...more });
    return resultOf(summaryOf(actionsOf([mine]), "mark"), EVENT_NS).join(" ");
  };
  expect(told({})).toMatch(/^Done: mark .*on 1 node; confirmed /);
  expect(told({ status: "refused", confirmed_ns: 0 })).toBe("Not done: mark on 1 node; 1 refused or failed");
});

test("what failed or was refused has moved nothing either", () => {
  const more = { status: "failed", expected: 0, confirmations: [], confirmed_ns: 0 };

  expect(said([command("node0", 5, more)])).toBe("Not moved away on 1 node; 1 refused or failed");
});

test("an agent that was quicker than the event is told without a minus", () => {
  expect(said([command("node0", -9, armed)])).toBe(
    "Moved away 9.00 ms before this fault, on 1 node, which acted by itself, without a command; " +
      "2 of 2 pairs confirmed on the wire after 34.0 ms",
  );
});

const flap = command("node0", -1.5, { ...armed, ...already });
const first = command("node0", -7_500, armed);

test("what was moved already is told with the time of the move, which an earlier outcome has, not with that of the look", () => {
  expect(said([flap], [first])).toMatch(/^Moved away 7.50 s before this fault, on 1 node, which acted by itself, /);
  expect(actionsOf([flap], [first])[0]).toMatchObject({ moved_ns: first.outcomes[0]?.moved_ns, unasked: true });
});

test.each([
  ["no outcome is known", []],
  ["the outcome is another node's", [command("node1", -7_500, armed)]],
  ["it is of other traffic", [command("node0", -7_500, { away: ["rail1"] })]],
  ["it came later", [command("node0", 9)]],
  [
    "the traffic was brought back since",
    [first, command("node0", -900, { verb: "restore", away: [], back: ["rail0"] })],
  ],
])("when it was moved is not made up where %s", (_, earlier) => {
  expect(said([flap], earlier)).toBe("Moved away already, on 1 node; 2 of 2 pairs confirmed on the wire after 34.0 ms");
});

test("a command for what an agent did by itself is explained by that, pair by pair too", () => {
  const traffic = { away: [], placements: [{ peer: "node3", rail: "rail0" }] };
  const commands = [command("node0", 5, { ...armed, ...traffic }), command("node0", 60, { ...already, ...traffic })];

  expect(actionsOf(commands).map((action) => [action.status, Math.round((action.moved_ns - EVENT_NS) / 1e6)])).toEqual([
    ["done", 5],
    ["already", 5],
  ]);
  expect(said(commands)).toMatch(/^Moved away after 5.00 ms, on 1 node, which acted by itself, /);
});

test("only nodes of which nothing explains what they found are asked what they did before", () => {
  const commands = [flap, command("node1", 5), command("node1", 60, already), command("node2", 60, already)];

  expect(unexplained(commands)).toEqual(["node0", "node2"]);
});

test.each([
  [0, "on 3 nodes;"],
  [1, "on 3 nodes, 1 of which acted by itself, without a command;"],
  [2, "on 3 nodes, 2 of which acted by themselves, without a command;"],
  [3, "on 3 nodes, all of which acted by themselves, without a command;"],
])("%d of three nodes that act by themselves are told so", (unasked, words) => {
  const commands = [0, 1, 2].map((each) => command(`node${each}`, 5 + each, { armed: each < unasked }));

  expect(said(commands)).toContain(words);
});

test("a node that acts twice is one node", () => {
  expect(said([command("node0", 5, armed), command("node0", 6, armed)])).toContain("on 1 node, which acted by itself,");
});
