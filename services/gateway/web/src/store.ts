import { batch, computed, type ReadonlySignal, type Signal, signal } from "@preact/signals";
import type { Ears } from "./connection.ts";
import { concerns, rowsOf, withEvent } from "./events.ts";
import { abnormal, countsOf, isSameShape, type NodeOfTiles, nodesOf, withTiles } from "./fleet.ts";
import { fleetUnknown, freshnessOf, pastUnknown } from "./freshness.ts";
import type { GatewayState, Tile, Told } from "./wire.ts";

/** All that the page knows. Each tile is a signal of its own, so that a change redraws one tile and not the grid. */

let tiles: ReadonlyMap<string, Tile> = new Map();
const cells = new Map<string, Signal<Tile | undefined>>();

export const nodes = signal<NodeOfTiles[]>([]);
export const counts = signal(countsOf([]));
export const troubled = signal<Tile[]>([]);
export const events = signal<readonly Told[]>([]);
export const missed = signal(0);
export const state = signal<GatewayState | null>(null);
export const now_ms = signal(performance.now());
/** The NIC whose events are shown; empty: all. */
export const chosenNic = signal("");
/** The event whose trace is shown; empty: none. */
export const openEvent = signal(eventOfAddress());

const opened_ms = performance.now();
const heard_ms = signal<number | null>(null);

export const freshness = computed(() => freshnessOf(state.value, heard_ms.value, now_ms.value, opened_ms));
/** Why nothing can be said of the fleet, or of what happened; empty: it can. */
export const noFleet = computed(() => fleetUnknown(state.value, freshness.value.liveness, nodes.value.length));
export const noPast = computed(() => pastUnknown(state.value, freshness.value.liveness));

/** Reference time, by the gateway's last word. */
export const now_ns: ReadonlySignal<number> = computed(
  () => (state.value?.now_ns ?? 0) + (now_ms.value - (heard_ms.value ?? now_ms.value)) * 1e6,
);

export const rows = computed(() => {
  const nic = chosenNic.value;
  return rowsOf(nic ? events.value.filter((told) => concerns(told.event.who, nic)) : events.value);
});

export function cell(nic: string): Signal<Tile | undefined> {
  const known = cells.get(nic) ?? signal(tiles.get(nic));
  cells.set(nic, known);
  return known;
}

export const ears: Ears = {
  state(word) {
    batch(() => {
      state.value = word;
      heard_ms.value = now_ms.value = performance.now();
    });
  },
  tiles(word) {
    tiles = withTiles(tiles, word);
    const shape = nodesOf(tiles.values());
    batch(() => {
      for (const nic of word.whole ? cells.keys() : word.gone) cell(nic).value = tiles.get(nic);
      for (const tile of word.tiles) cell(tile.nic).value = tile;
      if (!isSameShape(nodes.value, shape)) nodes.value = shape;
      counts.value = countsOf(tiles.values());
      troubled.value = abnormal(tiles.values());
    });
  },
  event(word) {
    arrived.push(word);
    if (arrived.length === 1) queueMicrotask(takeArrived);
  },
  missed(word) {
    missed.value += word.events;
  },
};

/** Hundreds come at once after a connection; they are shown once. */
const arrived: Told[] = [];

function takeArrived(): void {
  events.value = arrived.splice(0).reduce(withEvent, events.value);
}

function eventOfAddress(): string {
  return new URLSearchParams(location.hash.slice(1)).get("event") ?? "";
}

export function show(eventId: string): void {
  location.hash = eventId ? new URLSearchParams({ event: eventId }).toString() : "";
}

export function choose(nic: string): void {
  chosenNic.value = nic;
}

export function start(): void {
  addEventListener("hashchange", () => {
    openEvent.value = eventOfAddress();
  });
  setInterval(() => {
    now_ms.value = performance.now();
  }, 500);
}
