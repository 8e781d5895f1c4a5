import { expect, test } from "vitest";
import { factOf } from "../src/facts.ts";
import { fleetUnknown, freshnessOf, pastUnknown } from "../src/freshness.ts";
import { ago, apart, apartShort, duration, tickLabel } from "../src/numbers.ts";
import type { GatewayState } from "../src/wire.ts";

const state = (more: Partial<GatewayState> = {}): GatewayState => ({
  now_ns: 0,
  bus: true,
  past: true,
  heard_ms: 40,
  ...more,
});

test.each([
  [null, null, 0, "connecting", "Connecting to the gateway"],
  [null, null, 4_000, "lost", "No word from the gateway"],
  [state(), 1_000, 1_500, "live", "Live · data 0.5 s old"],
  [state(), 1_000, 11_000, "lost", "Connection lost · what is shown is from 10 s ago"],
  [state({ bus: false, heard_ms: 60_000 }), 1_000, 1_000, "stale", "The gateway has lost the bus · data from 60 s ago"],
  [state({ bus: false, heard_ms: null }), 1_000, 1_000, "stale", "The gateway does not reach the bus"],
  [state({ heard_ms: null }), 1_000, 1_000, "stale", "No probe has spoken yet"],
  [state({ heard_ms: 9_000 }), 1_000, 1_000, "stale", "No probe speaks · data from 9 s ago"],
] as const)("what is shown is called live only while it is (%#)", (known, heard_ms, now_ms, liveness, words) => {
  expect(freshnessOf(known, heard_ms, now_ms)).toEqual({ liveness, words });
});

test.each([
  [null, "connecting", 0, "this page is connecting", "this page is connecting"],
  [null, "lost", 0, "no word from the gateway", "no word from the gateway"],
  [state({ bus: false, past: false }), "stale", 0, "does not reach the bus", "does not reach the bus"],
  [state({ bus: false }), "stale", 3, "", ""],
  [state({ past: false }), "live", 3, "", "The past is being read."],
  [state(), "live", 0, "", ""],
] as const)(
  "what is not known is not shown as nothing, and the page says why (%#)",
  (known, liveness, nodes, fleet, past) => {
    const said = [fleetUnknown(known, liveness, nodes), pastUnknown(known, liveness)];

    expect(said.map((words) => words !== "")).toEqual([fleet !== "", past !== ""]);
    expect(said[0]).toContain(fleet);
    expect(said[1]).toContain(past);
  },
);

test.each([
  [21e6, "after 21.0 ms", "+21.0 ms"],
  [0, "after 0.00 ms", "+0.00 ms"],
  [-1_000, "after 0.00 ms", "+0.00 ms"],
  [-10.8e6, "10.8 ms before this fault", "10.8 ms before"],
  [-7.4913e9, "7.49 s before this fault", "7.49 s before"],
])("%d ns from an event on is told without a minus", (after_ns, words, short) => {
  expect([apart(1.7e18 + after_ns, 1.7e18), apartShort(1.7e18 + after_ns, 1.7e18)]).toEqual([words, short]);
});

test.each([
  [0, 20e6, "0 ms"],
  [160e6, 20e6, "160 ms"],
  [8_005e6, 5e6, "8,005 ms"],
  [12_005e6, 5e6, "12.005 s"],
  [150_000, 50_000, "0.15 ms"],
  [300, 100, "0.0003 ms"],
  [3e9, 1e9, "3 s"],
  [-10e6, 5e6, "\u221210 ms"],
])("the tick at %d ns, %d ns from the next, says %s", (at_ns, step_ns, words) => {
  expect(tickLabel(at_ns, step_ns)).toBe(words);
});

test.each([
  [4_200_000, "4.20 ms"],
  [64_000_000, "64.0 ms"],
  [640_000_000, "640 ms"],
  [999_600_000, "1.00 s"],
  [8_034_000_000, "8.03 s"],
  [180e9, "3 min"],
])("%d ns is %s", (duration_ns, words) => {
  expect(duration(duration_ns)).toBe(words);
});

test.each([
  [0, "now"],
  [-5e9, "now"],
  [12e9, "12 s ago"],
  [600e9, "10 min ago"],
  [7_200e9, "2 h ago"],
  [400_000e9, "5 d ago"],
])("%d ns before now is %s", (age_ns, words) => {
  expect(ago(age_ns)).toBe(words);
});

test.each([
  ["silent_ms", 151.6, "silent", "152 ms"],
  ["half_life_s", 4, "half life", "4.00 s"],
  ["last_heard_ns", 1.7e18 - 20e6, "last heard", "20.0 ms before it began"],
  ["reuse_at_ns", 1.7e18 + 8e9, "reuse at", "8.00 s after it began"],
  ["sent_on_path", true, "sent on path", "yes"],
  ["penalty", 1234.5678, "penalty", "1235"],
  ["paths_between", 4, "paths between", "4"],
  ["witness", "node1", "witness", "node1"],
])("the evidence %s = %s has its unit", (key, value, name, words) => {
  expect(factOf(key, value, 1.7e18)).toEqual({ name, value: words });
});
