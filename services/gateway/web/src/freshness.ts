import { ago } from "./numbers.ts";
import type { GatewayState } from "./wire.ts";

/** The gateway speaks once a second; after three missed words it is away. */
export const SILENT_MS = 3_500;
/** Probes speak ten times a second. */
const STALE_MS = 3_000;

export type Liveness = "connecting" | "live" | "stale" | "lost";

export interface Freshness {
  liveness: Liveness;
  words: string;
}

/** What the page may claim of what it shows.
 *
 * heard_ms, now_ms and opened_ms are of the page's own steady clock; `state` is what the gateway last said of itself. */
export function freshnessOf(
  state: GatewayState | null,
  heard_ms: number | null,
  now_ms: number,
  opened_ms = 0,
): Freshness {
  if (state === null || heard_ms === null) {
    return now_ms - opened_ms > SILENT_MS
      ? { liveness: "lost", words: "No word from the gateway" }
      : { liveness: "connecting", words: "Connecting to the gateway" };
  }
  const silent_ms = Math.max(0, now_ms - heard_ms);
  if (silent_ms > SILENT_MS) {
    return { liveness: "lost", words: `Connection lost · what is shown is from ${ago(silent_ms * 1e6)}` };
  }
  if (state.heard_ms === null) {
    return { liveness: "stale", words: state.bus ? "No probe has spoken yet" : "The gateway does not reach the bus" };
  }
  const age_ms = state.heard_ms + silent_ms;
  if (!state.bus) return { liveness: "stale", words: `The gateway has lost the bus · data from ${ago(age_ms * 1e6)}` };
  if (age_ms > STALE_MS) return { liveness: "stale", words: `No probe speaks · data from ${ago(age_ms * 1e6)}` };
  return { liveness: "live", words: `Live · data ${(age_ms / 1e3).toFixed(1)} s old` };
}

/** Why nothing can be said of the fleet, in words; empty: it can, and a fleet without nodes has none. */
export function fleetUnknown(state: GatewayState | null, liveness: Liveness, nodes: number): string {
  return unheard(state, liveness) || (nodes === 0 && !state?.bus ? NO_BUS : "");
}

/** Why nothing can be said of what happened; empty: it can. */
export function pastUnknown(state: GatewayState | null, liveness: Liveness): string {
  return unheard(state, liveness) || (state?.past ? "" : state?.bus ? "The past is being read." : NO_BUS);
}

const NO_BUS = "Not known yet: the gateway does not reach the bus.";

/** The first word of the gateway's state comes after all the tiles and events that it has. */
function unheard(state: GatewayState | null, liveness: Liveness): string {
  if (state !== null) return "";
  return liveness === "lost"
    ? "Not known: there is no word from the gateway. This page goes on trying."
    : "Not known yet: this page is connecting to the gateway.";
}
