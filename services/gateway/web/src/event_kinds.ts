/** Made by `make asyncapi` from schemas/foliot_schemas/event_kinds.py: the states of each kind of event. */
export const STATES = {
  flap: ["down", "up", "admin-down", "admin-up"],
  path: ["silent", "lossy", "speaking"],
  nic: ["lossy", "sound"],
  process: ["dead", "alive"],
  clock: ["disrupted", "synchronised"],
  refusal: ["refused"],
  contention: ["fabric-contention", "own-nic", "incast", "slow-receiver", "reduced-rate", "clear"],
  threshold: ["over", "under"],
  mismatch: ["elsewhere", "agrees"],
  hang: ["absent", "mismatch", "stopped", "dead", "silent", "stuck", "broken", "replaced", "moving", "over"],
  straggler: ["compute", "data", "processor", "network", "halted", "in-step", "over", "unknown"],
  hardware: ["failed", "degraded", "restarted"],
} as const;

export type KnownKind = keyof typeof STATES;
export type StateOf<Kind extends KnownKind> = (typeof STATES)[Kind][number];
