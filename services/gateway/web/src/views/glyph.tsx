import type { Condition } from "../wire.ts";

/** Shapes that differ without colour: a tick, a cross, an arrow that turns aside, a question. */
const strokes: Record<Condition, string> = {
  up: "M3 8.5l3.2 3.2L13 4.8",
  lost: "M4 4l8 8M12 4l-8 8",
  moved: "M3 13V9a3 3 0 0 1 3-3h7M9.5 2.5L13 6l-3.5 3.5",
  unknown: "M5.2 5.6a2.8 2.8 0 1 1 4.3 2.3c-1 .6-1.5 1.1-1.5 2.1M8 13v.01",
};

export function Glyph({ condition }: { condition: Condition }) {
  return (
    <svg class="glyph" viewBox="0 0 16 16" aria-hidden="true">
      <path d={strokes[condition]} />
    </svg>
  );
}
