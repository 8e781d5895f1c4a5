import { plural } from "../numbers.ts";
import { counts, freshness, nodes, noFleet } from "../store.ts";
import type { Condition } from "../wire.ts";
import { Glyph } from "./glyph.tsx";

const conditions: Condition[] = ["up", "lost", "moved", "unknown"];
const meanings: Record<Condition, string> = {
  up: "carries its traffic",
  lost: "link or paths are down",
  moved: "its traffic goes elsewhere",
  unknown: "its probe is not heard",
};

export function Header() {
  const isKnown = noFleet.value === "";
  const total = Object.values(counts.value).reduce((sum, count) => sum + count, 0);
  return (
    <header>
      <div class="title">
        <h1>Foliot</h1>
        {isKnown && (
          <p>
            {plural(nodes.value.length, "node")}, {plural(total, "NIC")}
          </p>
        )}
      </div>
      <dl class="counts">
        {conditions.map((condition) => (
          <div key={condition} class={`count ${condition}`} data-empty={!isKnown || counts.value[condition] === 0}>
            <dt>
              <Glyph condition={condition} /> {condition} <small>{meanings[condition]}</small>
            </dt>
            <dd data-testid={`count-${condition}`}>{isKnown ? counts.value[condition] : "–"}</dd>
          </div>
        ))}
      </dl>
      <Connection />
    </header>
  );
}

function Connection() {
  const { liveness, words } = freshness.value;
  return (
    <p class={`connection ${liveness}`} data-testid="connection" data-liveness={liveness}>
      <span class="lamp" aria-hidden="true" />
      {words}
      {/* Read out when it changes, not each time the age does. */}
      <span class="unseen" role="status">
        {liveness === "live" ? "Connected" : liveness === "lost" ? "Connection lost" : ""}
      </span>
    </p>
  );
}
