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
 * heard_ms and now_ms are of the page's own steady clock; `state` is what the gateway last said of itself. */
export function freshnessOf(state: GatewayState | null, heard_ms: number | null, now_ms: number): Freshness {
  if (state === null || heard_ms === null) return { liveness: "connecting", words: "Connecting to the gateway" };
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
