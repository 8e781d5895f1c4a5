import { SILENT_MS } from "./freshness.ts";
import type { GatewayState, Missed, Tiles, Told } from "./wire.ts";

export interface Ears {
  state(word: GatewayState): void;
  tiles(word: Tiles): void;
  event(word: Told): void;
  missed(word: Missed): void;
}

/** Follows the gateway's stream for good.
 *
 * The browser connects anew by itself after most troubles, and says which event it had last. After an answer that is no stream it
 * gives up, and a connection that is open and silent it does not notice: both are seen here by the silence. */
export function follow(ears: Ears): void {
  let source: EventSource;
  let lastId = "";
  let heard_ms = performance.now();

  const open = () => {
    source = new EventSource(`/api/v1/stream${lastId && `?after=${encodeURIComponent(lastId)}`}`);
    for (const name of ["state", "tiles", "event", "missed"] as const) {
      source.addEventListener(name, (message) => {
        heard_ms = performance.now();
        lastId = message.lastEventId || lastId;
        ears[name](JSON.parse(message.data));
      });
    }
  };
  const watch = () => {
    if (performance.now() - heard_ms < SILENT_MS) return;
    heard_ms = performance.now();
    source.close();
    open();
  };
  open();
  setInterval(watch, 500);
}
