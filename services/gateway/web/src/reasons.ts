import { concerns, isOf } from "./events.ts";
import { conditionOf } from "./fleet.ts";
import { timeOfDay } from "./numbers.ts";
import type { FoliotEvent, Tile, Told } from "./wire.ts";

/** Why a NIC is as it is; empty: nobody said so.
 *
 * Why traffic still goes past one that works, the tile does not say: what is known of that stands in the events. */
export function reasonOf(tile: Tile, events: readonly Told[], now_ns: number): string {
  const held = conditionOf(tile) === "moved" ? heldBy(lastFlap(tile.nic, events), now_ns) : "";
  return [held, tile.why].filter(Boolean).join("; ");
}

/** Where its traffic goes, in words; empty: nobody knows, as nobody speaks for it. */
export function trafficOf(tile: Tile): string {
  if (tile.moved) return "goes elsewhere";
  return conditionOf(tile) === "unknown" ? "" : "as usual";
}

/** The last word on the NIC's port, unless something else went wrong after it. */
function lastFlap(nic: string, events: readonly Told[]): FoliotEvent | undefined {
  for (const { event, bad } of [...events].reverse()) {
    if (isOf(event, "flap") && event.who === nic) return event;
    if (isOf(event, "path") && bad && concerns(event.who, nic)) return undefined;
  }
  return undefined;
}

function heldBy(flap: FoliotEvent | undefined, now_ns: number): string {
  if (!flap) return "";
  const reuse_ns = flap.evidence.reuse_at_ns;
  if (typeof reuse_ns === "number" && reuse_ns > now_ns) return `damped for its flaps until ${timeOfDay(reuse_ns)}`;
  if (isOf(flap, "flap", "up")) return `its carrier is back since ${timeOfDay(flap.at_ns)}`;
  return isOf(flap, "flap", "admin-up") ? `set up again by an administrator at ${timeOfDay(flap.at_ns)}` : "";
}
