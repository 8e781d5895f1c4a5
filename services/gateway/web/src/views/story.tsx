import { useEffect, useRef } from "preact/hooks";
import { actsOf } from "../acts.ts";
import { type Deed, deedsOf, summaryOf } from "../deeds.ts";
import { type Fact, factOf } from "../facts.ts";
import { date, plural } from "../numbers.ts";
import { resultOf } from "../results.ts";
import { show } from "../store.ts";
import { type Story, story } from "../story.ts";
import type { FoliotEvent } from "../wire.ts";
import { Deeds } from "./deeds.tsx";
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
  const acts = trace ? actsOf(trace.spans) : [];
  const deeds = deedsOf(story.commands, story.earlier);
  const since_ns = told?.event.since_ns ?? trace?.summary.start_ns ?? 0;
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
      {told && <FactList facts={factsOf(told.event)} />}
      <Results deeds={deeds} since_ns={since_ns} />
      {story.problem && <p class="none">{story.problem}</p>}
      {!trace && !story.problem && <p class="none">Fetching the trace.</p>}
      {acts.map((act, index) => (
        <Waterfall key={act.start_ns} act={act} number={index} zero_ns={since_ns} />
      ))}
      {deeds.length > 0 && <Deeds deeds={deeds} since_ns={since_ns} />}
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
function factsOf(event: FoliotEvent): Fact[] {
  const doubt = event.confidence < 1 ? [factOf("confidence", event.confidence)] : [];
  // A time of 0 is none: what would be said here does not apply.
  const given = Object.entries(event.evidence).filter(([name, value]) => !(name.endsWith("_at_ns") && value === 0));
  const evidence = given.map(([name, value]) => factOf(name, value, event.since_ns));
  return [{ name: "began", value: date(event.since_ns) }, ...doubt, ...evidence];
}

/** What came of it, in a sentence per verb. */
function Results({ deeds, since_ns }: { deeds: Deed[]; since_ns: number }) {
  const summaries = ["reroute", "restore"].map((verb) => summaryOf(deeds, verb)).filter((each) => each.nodes > 0);
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
