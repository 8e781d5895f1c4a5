/** Numbers as people read them. */

/** A distance in time: `4.20 ms`, `640 ms`, `8.03 s`, `3 min`. */
export function duration(duration_ns: number): string {
  const size = Math.abs(duration_ns);
  if (size < 999.5e6) return `${(duration_ns / 1e6).toFixed(size < 10e6 ? 2 : size < 100e6 ? 1 : 0)} ms`;
  if (size < 120e9) return `${(duration_ns / 1e9).toFixed(2)} s`;
  return `${Math.round(duration_ns / 60e9)} min`;
}

/** Clocks agree to some microseconds, and less is not shown. */
const EVEN_NS = 5_000;

/** When something was, told from a fault's beginning on: `after 4.20 ms`, or `9.00 ms before this fault`. */
export function apart(at_ns: number, zero_ns: number): string {
  const length = duration(Math.abs(at_ns - zero_ns));
  return isBefore(at_ns, zero_ns) ? `${length} before this fault` : `after ${length}`;
}

/** The same in a table: `+4.20 ms`, or `9.00 ms before`. */
export function apartShort(at_ns: number, zero_ns: number): string {
  const length = duration(Math.abs(at_ns - zero_ns));
  return isBefore(at_ns, zero_ns) ? `${length} before` : `+${length}`;
}

function isBefore(at_ns: number, zero_ns: number): boolean {
  return at_ns < zero_ns - EVEN_NS;
}

/** The label of a tick: as exact as the step to the next one. */
export function tickLabel(at_ns: number, step_ns: number): string {
  const inSeconds = step_ns >= 1e9 || Math.abs(at_ns) >= 10e9;
  const unit_ns = inSeconds ? 1e9 : 1e6;
  const digits = Math.max(0, -Math.floor(Math.log10(step_ns / unit_ns) + 1e-9));
  const size = Math.abs(at_ns / unit_ns).toLocaleString("en", {
    minimumFractionDigits: digits,
    maximumFractionDigits: digits,
  });
  return `${at_ns < 0 ? "\u2212" : ""}${size} ${inSeconds ? "s" : "ms"}`;
}

/** How long ago something was: `now`, `12 s ago`, `3 min ago`, `5 h ago`, `2 d ago`. */
export function ago(age_ns: number): string {
  const seconds = Math.max(0, age_ns / 1e9);
  if (seconds < 1.5) return "now";
  if (seconds < 90) return `${Math.round(seconds)} s ago`;
  if (seconds < 5_400) return `${Math.round(seconds / 60)} min ago`;
  if (seconds < 129_600) return `${Math.round(seconds / 3_600)} h ago`;
  return `${Math.round(seconds / 86_400)} d ago`;
}

/** Time of day, to the millisecond, in the reader's zone. */
export function timeOfDay(at_ns: number): string {
  const at = new Date(at_ns / 1e6);
  const two = (value: number) => String(value).padStart(2, "0");
  const millisecond = String(at.getMilliseconds()).padStart(3, "0");
  return `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}.${millisecond}`;
}

export function date(at_ns: number): string {
  return new Date(at_ns / 1e6).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "medium" });
}

export function plural(count: number, word: string): string {
  return `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;
}
