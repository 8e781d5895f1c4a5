import { signal } from "@preact/signals";
import { conditionOf, type NodeOfTiles, stepped, wordsOf } from "../fleet.ts";
import { cell, choose, chosenNic, freshness, nodes, noFleet } from "../store.ts";
import { Glyph } from "./glyph.tsx";

/** The one tile that the Tab key reaches; arrows lead on from there. */
const focused = signal("");

export function Fleet() {
  const onKeyDown = (event: KeyboardEvent) => {
    const nic = (event.target as HTMLElement).dataset.nic;
    if (nic === undefined) return;
    const next = stepped(nodes.value, nic, event.key);
    if (next === nic) return;
    event.preventDefault();
    focused.value = next;
    (event.currentTarget as HTMLElement).querySelector<HTMLElement>(`[data-nic="${CSS.escape(next)}"]`)?.focus();
  };
  return (
    <section class={freshness.value.liveness === "live" ? "fleet" : "fleet old"} aria-labelledby="fleet">
      <h2 id="fleet">Fleet</h2>
      {nodes.value.length === 0 && <p class="none">{noFleet.value || "No node has registered yet."}</p>}
      {/* biome-ignore lint/a11y/noStaticElementInteractions: arrow keys move between the buttons inside */}
      <div class="nodes" onKeyDown={onKeyDown}>
        {nodes.value.map((node) => (
          <NodeColumn key={node.node} node={node} />
        ))}
      </div>
    </section>
  );
}

function NodeColumn({ node }: { node: NodeOfTiles }) {
  return (
    // biome-ignore lint/a11y/useSemanticElements: a fieldset cannot be laid out as a grid item everywhere
    <div class="node" role="group" aria-label={node.node}>
      <h3>{node.node}</h3>
      {node.nics.map((nic) => (
        <TileView key={nic} nic={nic} />
      ))}
    </div>
  );
}

function TileView({ nic }: { nic: string }) {
  const tile = cell(nic).value;
  if (tile === undefined) return null;
  const condition = conditionOf(tile);
  const first = nodes.value[0]?.nics[0];
  const reached = focused.value ? focused.value === nic : first === nic;
  const chosen = chosenNic.value === nic;
  return (
    <button
      type="button"
      class={`tile ${condition}`}
      data-nic={nic}
      data-condition={condition}
      data-moved={tile.moved ?? false}
      tabIndex={reached ? 0 : -1}
      aria-pressed={chosen}
      aria-label={`${tile.node} ${tile.rail} ${wordsOf(tile)}`}
      title={`${nic} is ${wordsOf(tile)}`}
      onFocus={() => {
        focused.value = nic;
      }}
      onClick={() => choose(chosen ? "" : nic)}
    >
      <Glyph condition={condition} />
      <span class="rail">{tile.rail}</span>
      {tile.moved && condition === "lost" && (
        <span class="aside">
          <Glyph condition="moved" />
        </span>
      )}
    </button>
  );
}
