/** What the gateway sends. The source of each shape is in services/gateway/foliot_gateway. */

export type Condition = "up" | "lost" | "moved" | "unknown";

/** state/nic_condition.py; what has its default is left out. */
export interface Tile {
  nic: string;
  node: string;
  rail: string;
  condition?: Condition;
  moved?: boolean;
  why?: string;
}

export interface Tiles {
  whole: boolean;
  tiles: Tile[];
  gone: string[];
}

export type Evidence = Record<string, number | string | boolean>;

/** Times are nanoseconds, beyond what a double holds exactly: they are right to 256 ns, a quarter of what is shown. */
export interface FoliotEvent {
  id: string;
  /** Ask by `isOf`: there are more kinds than this page knows, of extensions and later versions. */
  kind: string;
  who: string;
  state: string;
  at_ns: number;
  since_ns: number;
  confidence: number;
  evidence: Evidence;
  related: Record<string, string[]>;
  fault: string;
}

export interface Told {
  event: FoliotEvent;
  words: string;
  /** It tells of trouble, not of its end. */
  bad: boolean;
}

export interface Missed {
  events: number;
}

export interface GatewayState {
  now_ns: number;
  bus: boolean;
  past: boolean;
  heard_ms: number | null;
}

export interface Span {
  span_id: string;
  parent_id: string;
  name: string;
  service: string;
  instance: string;
  start_ns: number;
  end_ns: number;
  status: "unset" | "ok" | "error";
  message: string;
  attributes: Record<string, unknown>;
}

export interface Trace {
  summary: { trace_id: string; name: string; start_ns: number };
  quiet_ns: number;
  spans: Span[];
}

/** schemas/foliot_schemas/command.py */
export interface Outcome {
  id: string;
  verb: string;
  status: string;
  armed: boolean;
  reason: string;
  started_ns: number;
  moved_ns: number;
  confirmed_ns: number;
  expected: number;
  confirmations: unknown[];
  away: string[];
  back: string[];
  placements: { peer: string; rail: string }[];
}

export interface CommandView {
  id: string;
  verb: string;
  node: string;
  at_ns: number;
  status: string;
  armed: boolean;
  outcomes: Outcome[];
}

/** problems.py, RFC 9457. */
export interface Problem {
  detail: string;
}
