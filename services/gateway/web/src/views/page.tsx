import { nodes } from "../store.ts";
import { Events } from "./events.tsx";
import { Fleet } from "./fleet.tsx";
import { Header } from "./header.tsx";
import { StoryView } from "./story.tsx";
import { Troubled } from "./troubled.tsx";

/** A grid of more nodes than this fills the screen: what is not as usual stands before it then. */
const SCREENFUL = 32;

export function Page() {
  const isLarge = nodes.value.length > SCREENFUL;
  return (
    <>
      <Header />
      <main>
        <div class="fleet-and-story">
          {!isLarge && <Fleet />}
          <Troubled />
          <StoryView />
          {isLarge && <Fleet />}
        </div>
        <Events />
      </main>
    </>
  );
}
