import { expect, test } from "vitest";
import { abnormal, countsOf, isSameShape, nodesOf, stepped, withTiles, wordsOf } from "../src/fleet.ts";
import type { Tile } from "../src/wire.ts";

const tile = (node: string, rail: string, more: Partial<Tile> = {}): Tile => ({
  nic: `${node}.${rail}`,
  node,
  rail,
  ...more,
});
const fleet = () =>
  withTiles(new Map(), {
    whole: true,
    tiles: ["node10", "node2"].flatMap((node) => [tile(node, "rail1"), tile(node, "rail0")]),
    gone: [],
  });

test("a whole word replaces what was known, another one changes what it names", () => {
  const changed = withTiles(fleet(), {
    whole: false,
    tiles: [tile("node2", "rail0", { condition: "lost" })],
    gone: ["node10.rail1"],
  });

  expect([...changed.keys()].sort()).toEqual(["node10.rail0", "node2.rail0", "node2.rail1"]);
  expect(changed.get("node2.rail0")?.condition).toBe("lost");
  expect(withTiles(changed, { whole: true, tiles: [], gone: [] }).size).toBe(0);
});

test("nodes and rails stand in the order of their numbers", () => {
  expect(nodesOf(fleet().values())).toEqual([
    { node: "node2", nics: ["node2.rail0", "node2.rail1"] },
    { node: "node10", nics: ["node10.rail0", "node10.rail1"] },
  ]);
});

test("the grid is laid out anew only if a node or a NIC came or went", () => {
  const shape = nodesOf(fleet().values());
  const other = nodesOf([...fleet().values(), tile("node2", "rail2")]);

  expect(isSameShape(shape, nodesOf(fleet().values()))).toBe(true);
  expect(isSameShape(shape, other)).toBe(false);
});

test("a tile without a condition is up, and all are counted", () => {
  const tiles = [tile("a", "r"), tile("b", "r", { condition: "moved" }), tile("c", "r", { condition: "lost" })];

  expect(countsOf(tiles)).toEqual({ up: 1, lost: 1, moved: 1, unknown: 0 });
});

test("what is not as usual is listed gravest first, and what is up with bad paths last", () => {
  const tiles = [
    tile("a", "r"),
    tile("b", "r", { why: "1 of its 4 paths is silent" }),
    tile("c", "r", { condition: "moved" }),
    tile("d", "r", { condition: "lost" }),
  ];

  expect(abnormal(tiles).map((each) => each.node)).toEqual(["d", "c", "b"]);
});

test.each([
  [tile("a", "r"), "up"],
  [
    tile("a", "r", { condition: "lost", moved: true, why: "no carrier" }),
    "lost: no carrier; its traffic goes elsewhere",
  ],
  [tile("a", "r", { condition: "moved", moved: true }), "moved; its traffic goes elsewhere"],
])("the words of a tile say what its colour says: %o", (each, words) => {
  expect(wordsOf(each)).toBe(words);
});

test.each([
  ["ArrowRight", "node10.rail0"],
  ["ArrowLeft", "node2.rail0"],
  ["ArrowDown", "node2.rail1"],
  ["ArrowUp", "node2.rail0"],
  ["End", "node10.rail0"],
  ["Enter", "node2.rail0"],
])("%s leads from node2.rail0 to %s", (key, nic) => {
  expect(stepped(nodesOf(fleet().values()), "node2.rail0", key)).toBe(nic);
});
