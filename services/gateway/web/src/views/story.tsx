import { useEffect, useRef } from "preact/hooks";
import { type Action, actionsOf, summaryOf } from "../actions.ts";
import { beganOf } from "../events.ts";
import { type Fact, factOf } from "../facts.ts";
import { date, plural, timeOfDay } from "../numbers.ts";
import { resultOf } from "../results.ts";
import { segmentsOf } from "../segments.ts";
import { events, show } from "../store.ts";
import { type Story, story } from "../story.ts";
import type { FoliotEvent } from "../wire.ts";
import { Actions } from "./actions.tsx";
import { FactList } from "./facts.tsx";
import { Waterfall } from "./waterfall.tsx";

export function StoryView() {
  return story.value && <Open key={story.value.eventId} story={story.value} />;
}

function Open({ story }: { story: Story }) {
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    heading.current?.focus({ preventScroll: true });
    heading.current?.scrollIntoView({ block: "nearest", behavior: "auto" });
  }, []);
  const { told, trace } = story;
  const zero_ns = told ? beganOf(told, events.value) : (trace?.summary.start_ns ?? 0);
  const segments = trace ? segmentsOf(trace.spans, zero_ns) : [];
  const actions = actionsOf(story.commands, story.earlier);
  return (
    <section class="story" aria-labelledby="story" data-testid="story">
      <div class="heading">
        <h2 id="story" tabIndex={-1} ref={heading}>
          {told?.words ?? trace?.summary.name ?? "An event"}
        </h2>
        <button type="button" class="plain" onClick={() => close(story.eventId)}>
          close
        </button>
      </div>
      {told && <FactList facts={factsOf(told.event, zero_ns)} />}
      <Results actions={actions} since_ns={zero_ns} />
      {story.problem && <p class="none">{story.problem}</p>}
      {!trace && !story.problem && <p class="none">Fetching the trace.</p>}
      {(segments.length > 0 || actions.length > 0) && (
        <p class="none zero">
          0 is when the {told ? "fault" : "trace"} began, {timeOfDay(zero_ns)}: all times here count from it.
        </p>
      )}
      {segments.map((segment, index) => (
        <Waterfall key={segment.start_ns} segment={segment} number={index} zero_ns={zero_ns} />
      ))}
      {actions.length > 0 && <Actions actions={actions} since_ns={zero_ns} />}
      {trace && (
        <p class="none">
          {plural(trace.spans.length, "span")} of{" "}
          {plural(new Set(trace.spans.map((span) => span.service)).size, "service")}, trace{" "}
          <code>{trace.summary.trace_id}</code>
        </p>
      )}
    </section>
  );
}

function close(eventId: string): void {
  show("");
  document.querySelector<HTMLElement>(`[data-event="${CSS.escape(eventId)}"]`)?.focus();
}

/** What the verdict rests on. */
function factsOf(event: FoliotEvent, zero_ns: number): Fact[] {
  const doubt = event.confidence < 1 ? [factOf("confidence", event.confidence)] : [];
  // A time of 0 is none: what would be said here does not apply.
  const given = Object.entries(event.evidence).filter(([name, value]) => !(name.endsWith("_at_ns") && value === 0));
  const evidence = given.map(([name, value]) => factOf(name, value, zero_ns));
  const related = Object.entries(event.related).map(([name, names]) => ({ name, value: names.join(", ") }));
  return [{ name: "began", value: date(zero_ns) }, ...doubt, ...evidence, ...related];
}

/** What came of it, in a sentence per verb. */
function Results({ actions, since_ns }: { actions: Action[]; since_ns: number }) {
  const verbs = [...new Set(["reroute", "restore", ...actions.map((action) => action.verb)])];
  const summaries = verbs.map((verb) => summaryOf(actions, verb)).filter((each) => each.nodes > 0);
  return (
    <ul class="results">
      {summaries.map((each) => {
        const [what, rest] = resultOf(each, since_ns);
        return (
          <li key={each.verb}>
            <strong>{what}</strong> {rest}
          </li>
        );
      })}
    </ul>
  );
}
