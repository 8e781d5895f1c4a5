import type { CommandView, Outcome } from "./wire.ts";

/** What one node was told or did by itself, and what became of it. */
export interface Action {
  id: string;
  node: string;
  verb: string;
  /** The node acted before anybody told it to. */
  armed: boolean;
  status: string;
  reason: string;
  /** When it was told, or began by itself. */
  began_ns: number;
  /** 0: it did not. Of what was so already: when it was made so; 0: nobody knows. */
  moved_ns: number;
  /** What was moved was moved without a command, now or, of what was so already, then. */
  unasked: boolean;
  confirmed_ns: number;
  confirmed: number;
  expected: number;
}

/** By time, oldest first.
 *
 * A node that finds its traffic moved already says when it looked; when it was moved stands in an earlier outcome, perhaps of another
 * fault, which may be among `earlier`. */
export function actionsOf(commands: readonly CommandView[], earlier: readonly CommandView[] = []): Action[] {
  const known = [...commands, ...earlier];
  return commands
    .map((command) => {
      const last = command.outcomes.at(-1);
      const mover = command.status === "already" ? makerOf(command, known) : last;
      const made = command.status === "done" || command.status === "already";
      return {
        id: command.id,
        node: command.node,
        verb: command.verb,
        armed: command.armed,
        status: command.status,
        reason: last?.reason ?? "",
        began_ns: command.at_ns,
        moved_ns: made ? (mover?.moved_ns ?? 0) : 0,
        unasked: command.status === "already" ? (mover?.armed ?? false) : command.armed,
        confirmed_ns: last?.confirmed_ns ?? 0,
        confirmed: last?.confirmations.length ?? 0,
        expected: last?.expected ?? 0,
      };
    })
    .sort((a, b) => a.began_ns - b.began_ns || (a.node < b.node ? -1 : 1));
}

/** The nodes that found their traffic moved already, where none of these commands says by what. */
export function unexplained(commands: readonly CommandView[]): string[] {
  const found = commands.filter((command) => command.status === "already" && !makerOf(command, commands));
  return [...new Set(found.map((command) => command.node))];
}

/** The outcome that made so what a command found so: the node's last change of the same traffic, if it went the same way. */
function makerOf(command: CommandView, known: readonly CommandView[]): Outcome | undefined {
  const found = command.outcomes.at(-1);
  if (!found) return undefined;
  const looked_ns = Math.max(found.started_ns, found.moved_ns);
  let maker: Outcome | undefined;
  for (const outcome of known.filter((each) => each.node === command.node).flatMap((each) => each.outcomes)) {
    if (outcome.status !== "done" || outcome.moved_ns > looked_ns || !haveInCommon(outcome, found)) continue;
    if (!maker || maker.moved_ns < outcome.moved_ns) maker = outcome;
  }
  return maker?.verb === command.verb ? maker : undefined;
}

function haveInCommon(a: Outcome, b: Outcome): boolean {
  const traffic = ({ away, back, placements }: Outcome) => [
    ...[...away, ...back].map((rail) => `all of ${rail}`),
    ...placements.map(({ peer, rail }) => `${peer} on ${rail}`),
  ];
  const own = new Set(traffic(a));
  return traffic(b).some((each) => own.has(each));
}

export interface Summary {
  verb: string;
  nodes: number;
  /** Those of them whose traffic was moved without a command. */
  unasked: number;
  /** `already`: nothing was left to do. */
  came: "moved" | "already" | "waiting" | "nothing";
  /** The last of them; 0: none did, or nobody knows when. */
  moved_ns: number;
  confirmed: number;
  expected: number;
  confirmed_ns: number;
  failed: number;
}

/** All actions of a verb in one line. */
export function summaryOf(actions: readonly Action[], verb: string): Summary {
  const own = actions.filter((action) => action.verb === verb);
  const sum = (of: (action: Action) => number) => own.reduce((total, action) => total + of(action), 0);
  const nodesOf = (some: readonly Action[]) => new Set(some.map((action) => action.node)).size;
  const by = (status: string) => own.filter((action) => action.status === status);
  const [moved, already] = [by("done"), by("already")];
  const made = moved.length > 0 ? moved : already;
  return {
    verb,
    nodes: nodesOf(own),
    unasked: nodesOf(own.filter((action) => action.unasked)),
    came:
      moved.length > 0 ? "moved" : already.length > 0 ? "already" : by("pending").length > 0 ? "waiting" : "nothing",
    moved_ns: made.every((action) => action.moved_ns) ? Math.max(0, ...made.map((action) => action.moved_ns)) : 0,
    confirmed: sum((action) => action.confirmed),
    expected: sum((action) => action.expected),
    confirmed_ns: Math.max(0, ...own.map((action) => action.confirmed_ns)),
    failed: by("failed").length + by("refused").length,
  };
}
