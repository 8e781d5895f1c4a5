import { useState } from "preact/hooks";
import { factOf } from "../facts.ts";
import { apart, apartShort, duration, tickLabel } from "../numbers.ts";
import { type Bar, processOf, resultOf, type Segment, whoOf } from "../segments.ts";
import type { Span } from "../wire.ts";
import { FactList } from "./facts.tsx";

export function Waterfall({ segment, number, zero_ns }: { segment: Segment; number: number; zero_ns: number }) {
  const title = number === 0 ? "What happened" : capital(apart(segment.start_ns, zero_ns));
  return (
    <section class="segment" aria-label={title}>
      <h3>
        {title} <small>within {duration(segment.length_ns)}</small>
      </h3>
      <div class="axis" aria-hidden="true">
        {segment.ticks_ns.map((tick_ns) => (
          <span key={tick_ns} style={{ left: percent((tick_ns - segment.after_ns) / segment.length_ns) }}>
            {tickLabel(tick_ns, stepOf(segment))}
          </span>
        ))}
      </div>
      <ul class="bars">
        {segment.bars.map((bar) => (
          <BarView key={bar.spans[0].span_id} bar={bar} segment={segment} zero_ns={zero_ns} />
        ))}
      </ul>
    </section>
  );
}

function BarView({ bar, segment, zero_ns }: { bar: Bar; segment: Segment; zero_ns: number }) {
  const [isOpen, setOpen] = useState(false);
  const [span, ...more] = bar.spans;
  const took = duration(bar.width * segment.length_ns);
  const at = apart(span.start_ns, zero_ns);
  const who = whoOf(bar.spans);
  const times = more.length > 0 ? `${bar.spans.length} times` : "";
  return (
    <li class={`bar service-${span.service}`} data-testid="bar" data-service={span.service}>
      <button
        type="button"
        aria-expanded={isOpen}
        aria-label={[span.name, times, processOf(span), who, resultOf(span), at, `took ${took}`]
          .filter(Boolean)
          .join(", ")}
        onClick={() => setOpen(!isOpen)}
      >
        <span class="name" style={{ paddingInlineStart: `${Math.min(bar.depth, 8) * 0.7}rem` }}>
          <span class="what">
            {span.name} {times && <small>{times}</small>} <small>{resultOf(span)}</small> <small>{who}</small>
          </span>
          <span class="process">{processOf(span)}</span>
        </span>
        <span class="track">
          <span class="line" style={{ left: percent(bar.left), width: percent(bar.width) }} />
          <span class="took" style={{ left: percent(bar.left + bar.width) }}>
            {took}
          </span>
        </span>
      </button>
      {isOpen &&
        bar.spans.map((each) => <Attributes key={each.span_id} span={each} at={apartShort(each.start_ns, zero_ns)} />)}
    </li>
  );
}

function Attributes({ span, at }: { span: Span; at: string }) {
  const facts = Object.entries(span.attributes).map(([name, value]) => factOf(name.replace("foliot.", ""), value));
  const error = span.message ? [{ name: "error", value: span.message }] : [];
  return <FactList facts={[{ name: "at", value: at }, ...error, ...facts]} />;
}

function capital(words: string): string {
  return words.charAt(0).toUpperCase() + words.slice(1);
}

function stepOf(segment: Segment): number {
  const [first = 0, second = first + segment.length_ns] = segment.ticks_ns;
  return second - first;
}

function percent(share: number): string {
  return `${(share * 100).toFixed(3)}%`;
}
