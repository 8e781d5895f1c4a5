import { duration } from "./numbers.ts";

export interface Fact {
  name: string;
  value: string;
}

/** Nanoseconds since 1970 of any day after 1980; a duration is shorter. */
const TIME_NS = 315_532_800e9;

/** A number of the evidence with its unit, which its name ends with; times are told from `zero_ns` on. */
export function factOf(name: string, value: unknown, zero_ns = 0): Fact {
  const [, bare, unit] = /^(.+)_(ns|ms|s)$/.exec(name) ?? [];
  if (bare === undefined || typeof value !== "number") return { name: spaced(name), value: plain(value) };
  const value_ns = value * { ns: 1, ms: 1e6, s: 1e9 }[unit as "ns" | "ms" | "s"];
  if (value_ns < TIME_NS) return { name: spaced(bare), value: duration(value_ns) };
  const after_ns = value_ns - zero_ns;
  return { name: spaced(bare), value: `${duration(Math.abs(after_ns))} ${after_ns < 0 ? "before" : "after"} it began` };
}

function spaced(name: string): string {
  return name.replaceAll("_", " ");
}

function plain(value: unknown): string {
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value !== "number") return String(value);
  return Number.isInteger(value) ? value.toLocaleString("en") : String(Number(value.toPrecision(4)));
}
