import type { CommandView } from "./wire.ts";

/** What one node was told or did by itself, and what became of it. */
export interface Deed {
  id: string;
  node: string;
  verb: string;
  /** The node acted before anybody told it to. */
  armed: boolean;
  status: string;
  reason: string;
  told_ns: number;
  /** 0: it did not. */
  moved_ns: number;
  confirmed_ns: number;
  confirmed: number;
  expected: number;
}

/** By time, oldest first. */
export function deedsOf(commands: readonly CommandView[]): Deed[] {
  return commands
    .map((command) => {
      const last = command.outcomes.at(-1);
      return {
        id: command.id,
        node: command.node,
        verb: command.verb,
        armed: command.armed,
        status: command.status,
        reason: last?.reason ?? "",
        told_ns: command.at_ns,
        moved_ns: last?.moved_ns ?? 0,
        confirmed_ns: last?.confirmed_ns ?? 0,
        confirmed: last?.confirmations.length ?? 0,
        expected: last?.expected ?? 0,
      };
    })
    .sort((a, b) => a.told_ns - b.told_ns || (a.node < b.node ? -1 : 1));
}

export interface Summary {
  verb: string;
  nodes: number;
  armed: number;
  /** The last of them; 0: none did. */
  moved_ns: number;
  confirmed: number;
  expected: number;
  confirmed_ns: number;
  failed: number;
}

/** All deeds of a verb in one line. */
export function summaryOf(deeds: readonly Deed[], verb: string): Summary {
  const own = deeds.filter((deed) => deed.verb === verb);
  const sum = (of: (deed: Deed) => number) => own.reduce((total, deed) => total + of(deed), 0);
  return {
    verb,
    nodes: new Set(own.map((deed) => deed.node)).size,
    armed: own.filter((deed) => deed.armed).length,
    moved_ns: Math.max(0, ...own.map((deed) => deed.moved_ns)),
    confirmed: sum((deed) => deed.confirmed),
    expected: sum((deed) => deed.expected),
    confirmed_ns: Math.max(0, ...own.map((deed) => deed.confirmed_ns)),
    failed: own.filter((deed) => deed.status === "failed" || deed.status === "refused").length,
  };
}
