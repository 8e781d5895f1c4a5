import type { Span } from "./wire.ts";

/** A fault and its end may lie a minute apart, and each is over in milliseconds: one axis would show neither. A trace is therefore
 * cut where nothing happens for this long, and each segment has an axis of its own. */
const QUIET_NS = 400_000_000;
const TICKS = 5;
/** From a second on labels are long, as 3,006.5 ms. */
const LONG_NS = 1e9;
const LONG_TICKS = 3;

export interface Bar {
  /** One span; or some of the same name and process that nothing follows from, told together. */
  spans: [Span, ...Span[]];
  /** Parents of it within the segment. */
  depth: number;
  /** Shares of the segment's length. */
  left: number;
  width: number;
}

export interface Segment {
  start_ns: number;
  length_ns: number;
  /** When it begins, from the story's zero on; below 0: before that. */
  after_ns: number;
  bars: Bar[];
  /** From the story's zero on too: all that a story tells has the same zero. */
  ticks_ns: number[];
}

export function segmentsOf(spans: readonly Span[], zero_ns: number): Segment[] {
  const ordered = [...spans].sort(byStart);
  const groups: Span[][] = [];
  let end_ns = Number.NEGATIVE_INFINITY;
  for (const span of ordered) {
    const group = groups.at(-1);
    if (group && span.start_ns - end_ns <= QUIET_NS) group.push(span);
    else groups.push([span]);
    end_ns = Math.max(end_ns, span.end_ns);
  }
  return groups.map((group) => segmentOf(group, zero_ns));
}

function segmentOf(spans: Span[], zero_ns: number): Segment {
  const start_ns = Math.min(...spans.map((span) => span.start_ns));
  // Nothing has no length to be drawn in; a microsecond does.
  const length_ns = Math.max(1_000, Math.max(...spans.map((span) => span.end_ns)) - start_ns);
  const bars = treeOf(spans).map(({ spans, depth }) => {
    const left_ns = spans[0].start_ns;
    const right_ns = Math.max(...spans.map((span) => span.end_ns));
    return { spans, depth, left: (left_ns - start_ns) / length_ns, width: (right_ns - left_ns) / length_ns };
  });
  const after_ns = start_ns - zero_ns;
  return { start_ns, length_ns, after_ns, bars, ticks_ns: ticksOf(after_ns, length_ns) };
}

type Row = Pick<Bar, "spans" | "depth">;

/** Every span once, each after its parent, siblings by their start; whatever the parents say. */
function treeOf(spans: Span[]): Row[] {
  const children = new Map<string, Span[]>();
  const known = new Set(spans.map((span) => span.span_id));
  for (const span of spans) {
    const parent = known.has(span.parent_id) && span.parent_id !== span.span_id ? span.parent_id : "";
    const siblings = children.get(parent);
    if (siblings) siblings.push(span);
    else children.set(parent, [span]);
  }
  const shown = new Set<string>();
  const rows: Row[] = [];
  const show = (tops: Span[]) => {
    const stack = folded(tops, children, 0).reverse();
    for (let row = stack.pop(); row; row = stack.pop()) {
      if (shown.has(row.spans[0].span_id)) continue;
      for (const span of row.spans) shown.add(span.span_id);
      rows.push(row);
      stack.push(...folded(children.get(row.spans[0].span_id) ?? [], children, row.depth + 1).reverse());
    }
  };
  show(children.get("") ?? []);
  // What is left are loops, which no honest sender makes.
  for (const span of spans) if (!shown.has(span.span_id)) show([span]);
  return rows;
}

/** Siblings as rows: a detector that judges a dozen paths one after another is one row. */
function folded(siblings: Span[], children: Map<string, Span[]>, depth: number): Row[] {
  const alike = new Map<string, Row>();
  const rows: Row[] = [];
  for (const span of siblings) {
    const key = [span.name, processOf(span), span.status, resultOf(span)].join("\n");
    const row = children.has(span.span_id) ? undefined : alike.get(key);
    if (row) {
      row.spans.push(span);
      continue;
    }
    const fresh: Row = { spans: [span], depth };
    if (!children.has(span.span_id)) alike.set(key, fresh);
    rows.push(fresh);
  }
  return rows;
}

/** Round numbers, of a length from a beginning on. */
export function ticksOf(from_ns: number, length_ns: number): number[] {
  const rough = length_ns / (from_ns < LONG_NS ? TICKS : LONG_TICKS);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = ([1, 2, 5, 10].find((factor) => factor * power >= rough) ?? 10) * power;
  const [first, last] = [Math.ceil(from_ns / step), Math.floor((from_ns + length_ns) / step)];
  // Without + 0 there is a minus before a zero that is rounded up to.
  return Array.from({ length: last - first + 1 }, (_, index) => (first + index) * step + 0);
}

/** `node3/probe` where the process says so, else the service. */
export function processOf(span: Span): string {
  return span.instance.endsWith(`/${span.service}`) ? span.instance : span.service;
}

/** What became of it, where the span says so. */
export function resultOf(span: Span): string {
  const said = ["verb", "state", "status"].map((name) => span.attributes[`foliot.${name}`]);
  return [...said, span.status === "error" ? "failed" : ""].filter(Boolean).join(" ");
}

/** Whom they are about; of many the first, and how many more. */
export function whoOf(spans: readonly Span[]): string {
  const names = new Set(spans.map((span) => span.attributes["foliot.who"] ?? span.attributes["foliot.nic"]));
  const [first, ...more] = [...names].filter(Boolean);
  return `${first ?? ""}${more.length > 0 ? ` and ${more.length} more` : ""}`;
}

function byStart(a: Span, b: Span): number {
  return a.start_ns - b.start_ns || (a.span_id < b.span_id ? -1 : 1);
}
