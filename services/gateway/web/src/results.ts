import type { Summary } from "./actions.ts";
import { apart, plural } from "./numbers.ts";

const WAYS: Record<string, string> = { reroute: "away", restore: "back" };

/** What came of an event, as a sentence: how it begins, and how it goes on. */
export function resultOf(each: Summary, since_ns: number): [string, string] {
  const where = WAYS[each.verb];
  const [made, not] = where
    ? [`Moved ${where}`, `Not moved ${where}`]
    : [`Done: ${each.verb}`, `Not done: ${each.verb}`];
  const parts = [`on ${plural(each.nodes, "node")}${byThemselves(each)}`];
  if (each.expected > 0) {
    const when = each.confirmed_ns > 0 ? ` ${apart(each.confirmed_ns, since_ns)}` : "";
    const seen = where ? `${each.confirmed} of ${plural(each.expected, "pair")} confirmed on the wire` : "confirmed";
    if (where || when) parts.push(`${seen}${when}`);
  }
  if (each.failed > 0) parts.push(`${each.failed} refused or failed`);
  const rest = parts.join("; ");
  if (each.came === "waiting") return [`${not} yet`, rest];
  if (each.came === "nothing") return [not, rest];
  if (each.moved_ns) return [made, `${apart(each.moved_ns, since_ns)}, ${rest}`];
  return [made, each.came === "already" ? `already, ${rest}` : rest];
}

/** Armed agents move before a command comes. */
function byThemselves({ nodes, unasked }: Summary): string {
  if (unasked === 0) return "";
  const who = nodes === 1 ? "which" : unasked === nodes ? "all of which" : `${unasked.toLocaleString("en")} of which`;
  return `, ${who} acted by ${unasked === 1 ? "itself" : "themselves"}, without a command`;
}
