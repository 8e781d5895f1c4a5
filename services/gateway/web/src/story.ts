import { effect, signal } from "@preact/signals";
import { unexplained } from "./actions.ts";
import { events, openEvent } from "./store.ts";
import type { CommandView, Problem, Told, Trace } from "./wire.ts";

/** An event with its trace and with what was done about it, as far as that has arrived. */
export interface Story {
  eventId: string;
  told: Told | undefined;
  trace: Trace | null;
  commands: CommandView[];
  /** Of other faults, which moved what these found moved already. */
  earlier: CommandView[];
  /** Why there is no trace. */
  problem: string;
}

export const story = signal<Story | null>(null);

const AGAIN_MS = 1_000;
/** Services send their spans twice a second: after this long without any, none is under way. */
const QUIET_NS = 3_000_000_000;
/** The way back is commanded when a link has been good for long enough, and no event tells of that. */
const QUIET_AGAIN_MS = 5_000;
/** Nodes that are asked what they did earlier. */
const MOST_ASKED = 8;

/** Keeps the story of the open event up to date: often while its spans arrive, and at once when another event of its fault does. */
export function tell(): void {
  let waiting: number | undefined;
  let asked = new AbortController();

  effect(() => {
    const eventId = openEvent.value;
    const told = events.value.find((each) => each.event.id === eventId);
    // An effect runs again when what it read changes: this is what makes a story go on.
    const fault = told?.event.fault ?? "";
    const chapters = events.value.filter((each) => fault && each.event.fault === fault).length;
    const key = `${eventId}\n${fault}\n${chapters}`;
    if (key === current) return;
    current = key;
    clearTimeout(waiting);
    asked.abort();
    asked = new AbortController();
    if (!eventId) story.value = null;
    else void load(eventId, told, asked.signal);
  });

  async function load(eventId: string, told: Told | undefined, cancelled: AbortSignal): Promise<void> {
    const before = story.peek()?.eventId === eventId ? story.peek() : null;
    story.value = before ? { ...before, told } : empty(eventId, told);
    const next = await ask(eventId, told, cancelled);
    if (cancelled.aborted) return;
    // A gateway that is away for a moment takes nothing from what was told.
    story.value = next.problem && before?.trace ? { ...before, problem: next.problem } : next;
    const isQuiet = next.trace !== null && next.trace.quiet_ns >= QUIET_NS;
    waiting = setTimeout(() => void load(eventId, told, cancelled), isQuiet ? QUIET_AGAIN_MS : AGAIN_MS);
  }
}

let current = "";

function empty(eventId: string, told: Told | undefined): Story {
  return { eventId, told, trace: null, commands: [], earlier: [], problem: "" };
}

async function ask(eventId: string, told: Told | undefined, cancelled: AbortSignal): Promise<Story> {
  const story = empty(eventId, told);
  try {
    const fault = told?.event.fault;
    const [trace, commands] = await Promise.all([
      get<Trace>(`/api/v1/events/trace?${new URLSearchParams({ event: eventId })}`, cancelled),
      fault ? get<CommandView[]>(`/api/v1/commands?${new URLSearchParams({ fault, limit: "1000" })}`, cancelled) : [],
    ]);
    const nodes = unexplained(commands).slice(0, MOST_ASKED);
    const earlier = await Promise.all(
      nodes.map((node) => get<CommandView[]>(`/api/v1/commands?${new URLSearchParams({ node })}`, cancelled)),
    );
    return { ...story, trace, commands, earlier: earlier.flat() };
  } catch (error) {
    return { ...story, problem: error instanceof Error ? error.message : String(error) };
  }
}

async function get<Answer>(address: string, cancelled: AbortSignal): Promise<Answer> {
  let answer: Response;
  try {
    answer = await fetch(address, { signal: cancelled });
  } catch {
    throw new Error("The gateway does not answer.");
  }
  if (!answer.ok) {
    const problem = (await answer.json().catch(() => ({}))) as Partial<Problem>;
    throw new Error(problem.detail ?? `The gateway answered with status ${answer.status}.`);
  }
  return (await answer.json()) as Answer;
}
