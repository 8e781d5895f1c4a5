import type { KnownKind, StateOf } from "./event_kinds.ts";
import type { FoliotEvent, Told } from "./wire.ts";

/** As many as the gateway itself keeps for pages that come back. */
export const KEPT = 1_000;
/** What one cause makes comes within this: a dozen paths that fall silent are one line. */
const TOGETHER_NS = 2_000_000_000;

/** Whether an event is of a kind, and in a state of that kind if one is named. */
export function isOf<Kind extends KnownKind>(event: FoliotEvent, kind: Kind, state?: StateOf<Kind>): boolean {
  return event.kind === kind && (state === undefined || event.state === state);
}

/** The events by time, oldest first, with one more: known ones come again after a reconnection. */
export function withEvent(known: readonly Told[], told: Told): readonly Told[] {
  if (known.some((other) => other.event.id === told.event.id)) return known;
  let place = known.length;
  while (place > 0 && (known[place - 1] as Told).event.at_ns > told.event.at_ns) place -= 1;
  return [...known.slice(0, place), told, ...known.slice(place)].slice(-KEPT);
}

/** When the fault of an event began, as far as is known: what its story counts from, whichever of its events was opened.
 *
 * A path that falls silent was heard last when its event says, which of a path that is seldom probed is long before the fault: of those that
 * fell silent first, and together, the one that was heard last says most.
 */
export function beganOf(told: Told, events: readonly Told[]): number {
  const { fault } = told.event;
  const same = events.filter((each) => fault && each.event.fault === fault);
  const first = same[0]?.event ?? told.event;
  const together = same.filter(
    ({ event }) =>
      event.kind === first.kind &&
      event.state === first.state &&
      event.at_ns - first.at_ns <= TOGETHER_NS &&
      event.since_ns <= first.at_ns,
  );
  return together.reduce((latest_ns, each) => Math.max(latest_ns, each.event.since_ns), first.since_ns);
}

/** Events that say the same of one fault, told together. */
export interface Row {
  /** The first of them: what it says stands for all. */
  first: Told;
  who: Set<string>;
}

/** Rows, newest first. */
export function rowsOf(events: readonly Told[]): Row[] {
  const rows: Row[] = [];
  const open = new Map<string, Row>();
  for (const told of events) {
    const { fault, kind, state, at_ns } = told.event;
    const key = `${fault || told.event.id}\n${kind}\n${state}`;
    const row = open.get(key);
    if (row && !isOf(told.event, "flap") && at_ns - row.first.event.at_ns <= TOGETHER_NS) {
      row.who.add(told.event.who);
    } else {
      const fresh = { first: told, who: new Set([told.event.who]) };
      open.set(key, fresh);
      rows.push(fresh);
    }
  }
  return rows.reverse();
}

/** Whether an event is of a NIC: of itself, of a path that begins or ends there, or of its node. */
export function concerns(who: string, nic: string): boolean {
  const node = nic.slice(0, nic.lastIndexOf("."));
  const path = /^(.+)>(.+)#\d+$/.exec(who);
  if (path) return path[1] === nic || path[2] === nic;
  return who === nic || who === node || who.startsWith(`${node}/`);
}
