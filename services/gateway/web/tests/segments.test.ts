import { expect, test } from "vitest";
import { segmentsOf, ticksOf, whoOf } from "../src/segments.ts";
import type { Span } from "../src/wire.ts";

const span = (id: string, parent: string, start_ms: number, took_ms: number, more: Partial<Span> = {}): Span => ({
  span_id: id,
  parent_id: parent,
  name: id,
  service: "agent",
  instance: "",
  start_ns: start_ms * 1e6,
  end_ns: (start_ms + took_ms) * 1e6,
  status: "unset",
  message: "",
  attributes: {},
  ...more,
});
const outline = (spans: Span[]) =>
  segmentsOf(spans, 0).map((segment) =>
    segment.bars.map((bar) => `${">".repeat(bar.depth)}${bar.spans.map((s) => s.span_id).join("+")}`),
  );

test("a trace is cut where nothing happens for long, and all segments count from the same zero, which no span need begin at", () => {
  const spans = [span("lost", "", 155, 10), span("moved", "lost", 160, 35), span("restored", "lost", 8_000, 20)];
  const segments = segmentsOf(spans, -1e6);

  expect(segments.map((segment) => [segment.after_ns / 1e6, segment.length_ns / 1e6])).toEqual([
    [156, 40],
    [8_001, 20],
  ]);
  expect(segments.map((segment) => segment.ticks_ns.map((tick_ns) => tick_ns / 1e6))).toEqual([
    [160, 170, 180, 190],
    [8_010, 8_020],
  ]);
});

test("what still runs keeps a segment together", () => {
  expect(segmentsOf([span("long", "", 0, 1_000), span("late", "long", 900, 1)], 0).length).toBe(1);
});

test("spans hang below their parents, siblings by their start, whatever order they came in", () => {
  const spans = [span("d", "a", 3, 1), span("c", "b", 2, 1), span("b", "a", 1, 1), span("a", "", 0, 9)];

  expect(outline(spans)).toEqual([["a", ">b", ">>c", ">d"]]);
});

test("a span whose parent is of another segment, or never came, stands at the left", () => {
  expect(outline([span("a", "", 0, 1), span("b", "a", 5_000, 1), span("c", "gone", 5_000, 1)])).toEqual([
    ["a"],
    ["b", "c"],
  ]);
});

test("a loop of parents loses no span and does not hang", () => {
  expect(outline([span("a", "b", 0, 1), span("b", "a", 0, 1), span("c", "c", 0, 1)]).flat().length).toBe(3);
});

test("siblings that are alike and lead to nothing are one bar", () => {
  const judge = { name: "judge silence" };
  const spans = [
    span("root", "", 0, 9),
    span("a", "root", 1, 1, judge),
    span("b", "root", 3, 2, judge),
    span("c", "root", 4, 1, judge),
    span("d", "c", 4, 1),
    span("e", "root", 5, 1, { ...judge, instance: "node1/agent" }),
  ];

  expect(outline(spans)).toEqual([["root", ">a+b", ">c", ">>d", ">e"]]);
  expect(segmentsOf(spans, 0)[0]?.bars[1]).toMatchObject({ left: 1 / 9, width: 4 / 9 });
});

test("siblings with other results are other bars", () => {
  const judge = (state: string) => ({ name: "judge silence", attributes: { "foliot.state": state } });
  const spans = [
    span("root", "", 0, 9),
    span("a", "root", 1, 1, judge("silent")),
    span("b", "root", 2, 1, judge("speaking")),
    span("c", "root", 3, 1, judge("silent")),
  ];

  expect(outline(spans)).toEqual([["root", ">a+c", ">b"]]);
});

test("a bar says whom it is about, of many the first", () => {
  const about = (attributes: Record<string, unknown>) => span("a", "", 0, 1, { attributes });
  const path = about({ "foliot.who": "a.r>b.r#0" });

  expect(whoOf([path, about({ "foliot.who": "a.r>c.r#0" }), path])).toBe("a.r>b.r#0 and 1 more");
  expect(whoOf([about({ "foliot.nic": "a.r" })])).toBe("a.r");
  expect(whoOf([about({})])).toBe("");
});

test("a segment of no length can be drawn", () => {
  const [segment] = segmentsOf([span("a", "", 5, 0)], 0);

  expect(segment?.bars[0]).toMatchObject({ left: 0, width: 0 });
});

test.each([
  [0, 35e6, 10e6],
  [155e6, 9e6, 2e6],
  [-300, 1_000, 200],
  [0.5e9, 5e9, 1e9],
])("the ticks from %d ns on, over %d ns, are %d ns apart and lie within", (from_ns, length_ns, step_ns) => {
  const ticks = ticksOf(from_ns, length_ns);

  expect((ticks[1] ?? 0) - (ticks[0] ?? 0)).toBeCloseTo(step_ns, 6);
  expect(ticks[0]).toBeGreaterThanOrEqual(from_ns);
  expect(ticks.at(-1)).toBeLessThanOrEqual(from_ns + length_ns);
  expect(ticks.length).toBeGreaterThan(2);
});

test("no spans make no segments", () => {
  expect(segmentsOf([], 0)).toEqual([]);
});
