import { expect, test } from "vitest";
import { timeOfDay } from "../src/numbers.ts";
import { reasonOf, trafficOf } from "../src/reasons.ts";
import type { FoliotEvent, Tile, Told } from "../src/wire.ts";

const NOW_NS = 1_700_000_000e9;
const REUSE_NS = NOW_NS + 40e9;
const BACK_NS = NOW_NS - 3e9;
const NIC = "node3.rail0";

const tile = (more: Partial<Tile> = {}): Tile => ({ nic: NIC, node: "node3", rail: "rail0", ...more });
const moved = (why = "") => tile({ condition: "moved", moved: true, why });
const told = (more: Partial<FoliotEvent>, bad = false): Told => ({
  event: {
    id: "",
    kind: "flap",
    who: NIC,
    state: "up",
    at_ns: BACK_NS,
    since_ns: 0,
    confidence: 1,
    evidence: { reuse_at_ns: 0 },
    related: {},
    fault: "f",
    ...more,
  },
  words: "",
  bad,
});
const damped = told({ evidence: { reuse_at_ns: REUSE_NS } });
const silent = told({ kind: "path", who: `${NIC}>node1.rail0#0`, state: "silent" }, true);
const heard = told({ kind: "path", who: `${NIC}>node1.rail0#0`, state: "speaking" });
const BACK = `its carrier is back since ${timeOfDay(BACK_NS)}`;

test.each([
  ["nothing is known", moved(), [], ""],
  ["it is damped", moved(), [damped], `damped for its flaps until ${timeOfDay(REUSE_NS)}`],
  ["its damping is over", moved(), [told({ evidence: { reuse_at_ns: NOW_NS - 1e9 } })], BACK],
  ["its carrier is back", moved(), [silent, told({}), heard], BACK],
  ["it was set up again", moved(), [told({ state: "admin-up" })], /^set up again by an administrator at /],
  ["it is another that came back", moved(), [told({ who: "node1.rail0" })], ""],
  ["it came back long before a path fell silent", moved(), [told({}), silent, heard], ""],
  ["paths are silent", moved("2 of its 56 paths"), [told({})], `${BACK}; 2 of its 56 paths`],
  ["it is lost", tile({ condition: "lost", why: "no carrier", moved: true }), [damped], "no carrier"],
])("why a NIC is as it is says what is known, where %s", (_, each, events, why) => {
  expect(reasonOf(each, events, NOW_NS)).toEqual(typeof why === "string" ? why : expect.stringMatching(why));
});

test.each([
  [tile({ condition: "lost" }), "as usual"],
  [moved(), "goes elsewhere"],
  [tile({ condition: "unknown" }), ""],
  [tile({ condition: "unknown", moved: true }), "goes elsewhere"],
])("where the traffic of a NIC goes is said only if somebody knows: %o", (each, traffic) => {
  expect(trafficOf(each)).toBe(traffic);
});
