import type { Condition, Tile, Tiles } from "./wire.ts";

/** The tiles by NIC, after a word of the gateway. */
export function withTiles(known: ReadonlyMap<string, Tile>, word: Tiles): Map<string, Tile> {
  const next = word.whole ? new Map<string, Tile>() : new Map(known);
  for (const tile of word.tiles) next.set(tile.nic, tile);
  for (const nic of word.gone) next.delete(nic);
  return next;
}

export interface NodeOfTiles {
  node: string;
  nics: string[];
}

const byNumber = new Intl.Collator("en", { numeric: true });

/** The nodes in the order of their numbers, each with the names of its NICs by rail. */
export function nodesOf(tiles: Iterable<Tile>): NodeOfTiles[] {
  const nodes = new Map<string, Tile[]>();
  for (const tile of tiles) {
    const known = nodes.get(tile.node);
    if (known) known.push(tile);
    else nodes.set(tile.node, [tile]);
  }
  return [...nodes]
    .sort(([a], [b]) => byNumber.compare(a, b))
    .map(([node, nics]) => ({
      node,
      nics: nics.sort((a, b) => byNumber.compare(a.rail, b.rail)).map((tile) => tile.nic),
    }));
}

/** Whether two lists name the same nodes and NICs: then the grid stands, and only tiles change. */
export function isSameShape(a: NodeOfTiles[], b: NodeOfTiles[]): boolean {
  return (
    a.length === b.length &&
    a.every((node, n) => node.node === b[n]?.node && node.nics.join("\n") === b[n]?.nics.join("\n"))
  );
}

export function conditionOf(tile: Tile | undefined): Condition {
  return tile === undefined ? "unknown" : (tile.condition ?? "up");
}

export function countsOf(tiles: Iterable<Tile>): Record<Condition, number> {
  const counts: Record<Condition, number> = { up: 0, lost: 0, moved: 0, unknown: 0 };
  for (const tile of tiles) counts[conditionOf(tile)] += 1;
  return counts;
}

/** What a person has to know of a NIC, as a sentence without its name. */
export function wordsOf(tile: Tile): string {
  const why = tile.why ? `: ${tile.why}` : "";
  const away = tile.moved ? "; its traffic goes elsewhere" : "";
  return `${conditionOf(tile)}${why}${away}`;
}

const gravity: Condition[] = ["lost", "moved", "unknown", "up"];

/** The NICs that are not up, the gravest first; then those that are, and have some bad paths. */
export function abnormal(tiles: Iterable<Tile>): Tile[] {
  return [...tiles]
    .filter((tile) => conditionOf(tile) !== "up" || tile.why)
    .sort(
      (a, b) => gravity.indexOf(conditionOf(a)) - gravity.indexOf(conditionOf(b)) || byNumber.compare(a.nic, b.nic),
    );
}

/** Where an arrow key leads in the grid: left and right to the same rail of the neighbour, up and down within the node. */
export function stepped(nodes: NodeOfTiles[], nic: string, key: string): string {
  const column = nodes.findIndex((node) => node.nics.includes(nic));
  const row = nodes[column]?.nics.indexOf(nic) ?? -1;
  const at = (node: number, rail: number) => {
    const nics = nodes[Math.max(0, Math.min(nodes.length - 1, node))]?.nics ?? [];
    return nics[Math.max(0, Math.min(nics.length - 1, rail))] ?? nic;
  };
  switch (key) {
    case "ArrowLeft":
      return at(column - 1, row);
    case "ArrowRight":
      return at(column + 1, row);
    case "ArrowUp":
      return at(column, row - 1);
    case "ArrowDown":
      return at(column, row + 1);
    case "Home":
      return at(0, row);
    case "End":
      return at(nodes.length - 1, row);
    default:
      return nic;
  }
}
