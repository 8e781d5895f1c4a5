import { expect, test } from "vitest";
import { beganOf, concerns, KEPT, rowsOf, withEvent } from "../src/events.ts";
import type { FoliotEvent, Told } from "../src/wire.ts";

const told = (id: string, at_s: number, more: Partial<FoliotEvent> = {}): Told => ({
  event: {
    id,
    kind: "path",
    who: id,
    state: "silent",
    at_ns: at_s * 1e9,
    since_ns: 0,
    confidence: 1,
    evidence: {},
    related: {},
    fault: "f",
    ...more,
  },
  words: id,
  bad: true,
});

test("an event that comes again after a reconnection is there once", () => {
  const known = [told("a", 1), told("b", 2)].reduce(withEvent, [] as readonly Told[]);

  expect(withEvent(known, told("a", 1))).toBe(known);
});

test("events stand by their time, however they come", () => {
  const events = [told("b", 2), told("c", 3), told("a", 1)].reduce(withEvent, [] as readonly Told[]);

  expect(events.map((each) => each.event.id)).toEqual(["a", "b", "c"]);
});

test("the oldest are let go", () => {
  const all = Array.from({ length: KEPT + 5 }, (_, index) => told(`e${index}`, index));
  const events = all.reduce(withEvent, [] as readonly Told[]);

  expect([events.length, events[0]?.event.id]).toEqual([KEPT, "e5"]);
});

test("what one cause makes is one row, newest rows first", () => {
  const rows = rowsOf([
    told("a", 1),
    told("b", 1.1),
    told("c", 1.2, { fault: "other" }),
    told("d", 9, { state: "speaking" }),
    told("e", 9.5),
  ]);

  expect(rows.map((row) => [row.first.event.id, row.who.size])).toEqual([
    ["e", 1],
    ["d", 1],
    ["c", 1],
    ["a", 2],
  ]);
});

test("every flap is a row, and events without a fault have nothing in common", () => {
  const flaps = ["a", "b"].map((id) => told(id, 1, { kind: "flap", state: "down" }));
  const loners = ["c", "d"].map((id) => told(id, 2, { fault: "", kind: "clock", state: "disrupted" }));

  expect(rowsOf([...flaps, ...loners]).length).toBe(4);
});

test.each([
  ["node1.rail0", true],
  ["node1.rail1", false],
  ["node1", true],
  ["node1/probe", true],
  ["node10/probe", false],
  ["node1.rail0>node2.rail0#3", true],
  ["node2.rail0>node1.rail0#0", true],
  ["node1.rail1>node2.rail1#0", false],
])("%s concerns node1.rail0: %s", (who, does) => {
  expect(concerns(who, "node1.rail0")).toBe(does);
});

test("whichever event of a fault is opened, its story counts from the fault's beginning", () => {
  const events = [
    told("a", 1, { since_ns: 0.9e9 }),
    told("b", 1.1, { since_ns: 0.7e9 }),
    told("c", 1.2, { since_ns: 0.1e9, fault: "other" }),
  ];
  const loner = told("d", 5, { since_ns: 4e9, fault: "" });

  expect(events.map((each) => beganOf(each, events))).toEqual([0.9e9, 0.9e9, 0.1e9]);
  expect(beganOf(loner, [...events, told("e", 1, { fault: "" }), loner])).toBe(4e9);
});

test("of paths that fell silent together, the one that was heard last says when the fault began", () => {
  const silent = [
    told("backup", 10.15, { since_ns: 9.8e9 }),
    told("in use", 10.16, { since_ns: 9.99e9 }),
    told("later", 13, { since_ns: 12.9e9 }),
    told("again", 15, { state: "speaking", since_ns: 15e9 }),
  ];

  expect(silent.map((each) => beganOf(each, silent))).toEqual([9.99e9, 9.99e9, 9.99e9, 9.99e9]);
});
