import type { Row } from "../events.ts";
import { ago, plural, timeOfDay } from "../numbers.ts";
import { choose, chosenNic, missed, noPast, now_ns, openEvent, rows, show } from "../store.ts";

const MOST = 200;

export function Events() {
  const nic = chosenNic.value;
  return (
    <section class="events" aria-labelledby="events">
      <div class="heading">
        <h2 id="events">{nic ? `Events of ${nic}` : "Events"}</h2>
        {nic && (
          <button type="button" class="plain" onClick={() => choose("")}>
            show all
          </button>
        )}
      </div>
      {missed.value > 0 && (
        <p class="none">
          {plural(missed.value, "event")} came while this page was away, and the gateway let go of them.
        </p>
      )}
      {rows.value.length === 0 && <p class="none">{noPast.value || "Nothing has happened."}</p>}
      <ol>
        {rows.value.slice(0, MOST).map((row) => (
          <EventRow key={row.first.event.id} row={row} />
        ))}
      </ol>
    </section>
  );
}

function EventRow({ row }: { row: Row }) {
  const { event, words } = row.first;
  const isOpen = openEvent.value === event.id;
  const told = (
    <>
      <span class="when">
        <time dateTime={new Date(event.at_ns / 1e6).toISOString()}>{timeOfDay(event.at_ns)}</time>
        <span>{ago(now_ns.value - event.at_ns)}</span>
      </span>
      <span class="words">{words}</span>
      {row.who.size > 1 && <span class="more"> and {row.who.size - 1} more</span>}
    </>
  );
  const kind = row.first.bad ? "trouble" : "end";
  if (!event.fault) return <li class={kind}>{<div class="event">{told}</div>}</li>;
  return (
    <li class={kind}>
      <button
        type="button"
        class="event"
        data-testid="event"
        data-event={event.id}
        aria-expanded={isOpen}
        onClick={() => show(isOpen ? "" : event.id)}
      >
        {told}
      </button>
    </li>
  );
}
