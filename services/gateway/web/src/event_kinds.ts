/** Made by `make asyncapi` from schemas/foliot_schemas/event_kinds.py: the states of each kind of event. */
export const STATES = {
  flap: ["down", "up", "admin-down", "admin-up"],
  path: ["silent", "lossy", "speaking"],
  nic: ["lossy", "sound"],
  process: ["dead", "alive"],
  clock: ["disrupted", "synchronised"],
  refusal: ["refused"],
} as const;

/** Of an extension, or of a version later than this page. */
type Other = string & { readonly of: "another version" };

export type EventKind = keyof typeof STATES | Other;
