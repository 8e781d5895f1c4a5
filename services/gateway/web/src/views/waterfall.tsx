import { useState } from "preact/hooks";
import { type Act, type Bar, processOf, resultOf, whoOf } from "../acts.ts";
import { factOf } from "../facts.ts";
import { duration } from "../numbers.ts";
import type { Span } from "../wire.ts";
import { FactList } from "./facts.tsx";

export function Waterfall({ act, number, zero_ns }: { act: Act; number: number; zero_ns: number }) {
  const title = number === 0 ? "What happened" : later(act.start_ns - zero_ns);
  return (
    <section class="act" aria-label={title}>
      <h3>
        {title} <small>within {duration(act.length_ns)}</small>
      </h3>
      <div class="axis" aria-hidden="true">
        {act.ticks_ns.map((tick_ns) => (
          <span key={tick_ns} style={{ left: percent(tick_ns / act.length_ns) }}>
            {tickLabel(tick_ns, act)}
          </span>
        ))}
      </div>
      <ul class="bars">
        {act.bars.map((bar) => (
          <BarView key={bar.spans[0].span_id} bar={bar} act={act} />
        ))}
      </ul>
    </section>
  );
}

function BarView({ bar, act }: { bar: Bar; act: Act }) {
  const [isOpen, setOpen] = useState(false);
  const [span, ...more] = bar.spans;
  const took = duration(bar.width * act.length_ns);
  const at = duration(span.start_ns - act.start_ns);
  const who = whoOf(bar.spans);
  const times = more.length > 0 ? `${bar.spans.length} times` : "";
  return (
    <li class={`bar service-${span.service}`} data-testid="bar" data-service={span.service}>
      <button
        type="button"
        aria-expanded={isOpen}
        aria-label={[span.name, times, processOf(span), who, resultOf(span), `at ${at}`, `took ${took}`]
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
        bar.spans.map((each) => (
          <Attributes key={each.span_id} span={each} at={duration(each.start_ns - act.start_ns)} />
        ))}
    </li>
  );
}

function Attributes({ span, at }: { span: Span; at: string }) {
  const facts = Object.entries(span.attributes).map(([name, value]) => factOf(name.replace("foliot.", ""), value));
  const error = span.message ? [{ name: "error", value: span.message }] : [];
  return <FactList facts={[{ name: "at", value: at }, ...error, ...facts]} />;
}

function later(after_ns: number): string {
  return after_ns < 0 ? `${duration(-after_ns)} before this event` : `${duration(after_ns)} later`;
}

function tickLabel(tick_ns: number, act: Act): string {
  const step_ns = act.ticks_ns[1] ?? act.length_ns;
  if (step_ns >= 1e9) return `${tick_ns / 1e9} s`;
  if (step_ns >= 1e6) return `${Math.round(tick_ns / 1e6)} ms`;
  return `${Number((tick_ns / 1e6).toFixed(3))} ms`;
}

function percent(share: number): string {
  return `${(share * 100).toFixed(3)}%`;
}
