import { conditionOf } from "../fleet.ts";
import { plural } from "../numbers.ts";
import { reasonOf, trafficOf } from "../reasons.ts";
import { choose, events, freshness, nodes, now_ns, troubled } from "../store.ts";
import { Glyph } from "./glyph.tsx";

const MOST = 50;

/** The grid in words, for those NICs of which there is something to say. */
export function Troubled() {
  const tiles = troubled.value.filter((tile) => conditionOf(tile) !== "up");
  const touched = troubled.value.length - tiles.length;
  const also =
    touched > 0 && `${plural(touched, "NIC")} ${touched === 1 ? "is" : "are"} up with some paths silent or lossy.`;
  const isLive = freshness.value.liveness === "live";
  const calm = isLive
    ? "Every NIC carries its traffic."
    : "When they were last heard of, all NICs carried their traffic.";
  if (nodes.value.length === 0) return null;
  if (tiles.length === 0) return <p class="all-well">{also || calm}</p>;
  return (
    <section class="troubled" aria-labelledby="troubled">
      <h2 id="troubled">Not as usual</h2>
      <table>
        <thead>
          <tr>
            <th scope="col">NIC</th>
            <th scope="col">State</th>
            <th scope="col">Why</th>
            <th scope="col">Traffic</th>
          </tr>
        </thead>
        <tbody>
          {tiles.slice(0, MOST).map((tile) => (
            <tr key={tile.nic}>
              <th scope="row">
                <button type="button" class="plain" onClick={() => choose(tile.nic)}>
                  {tile.nic}
                </button>
              </th>
              <td class={`word ${conditionOf(tile)}`}>
                <Glyph condition={conditionOf(tile)} /> {conditionOf(tile)}
              </td>
              <td>{reasonOf(tile, events.value, now_ns.value) || "–"}</td>
              <td>{trafficOf(tile) || "–"}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {tiles.length > MOST && <p class="none">and {plural(tiles.length - MOST, "more NIC")}.</p>}
      {also && <p class="none">{also}</p>}
    </section>
  );
}
