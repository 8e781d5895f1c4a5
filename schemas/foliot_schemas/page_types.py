"""The kinds of event as TypeScript, for the gateway's page.

``python -m foliot_schemas.page_types`` prints them, and `make asyncapi` keeps a copy.
"""

from __future__ import annotations

import json
import re
import sys

from foliot_schemas import event_kinds

_HEAD = """\
/** Made by `make asyncapi` from schemas/foliot_schemas/event_kinds.py: the states of each kind of event. */
export const STATES = {
"""
_TAIL = """\
} as const;

export type KnownKind = keyof typeof STATES;
export type StateOf<Kind extends KnownKind> = (typeof STATES)[Kind][number];
"""


def typescript() -> str:
    """The text of the page's `event_kinds.ts`."""
    lines = [
        f"  {_key(kind.name)}: [{', '.join(json.dumps(state.name) for state in kind.states)}],\n"
        for kind in event_kinds.BUILT_IN
    ]
    return "".join([_HEAD, *lines, _TAIL])


def _key(name: str) -> str:
    return name if re.fullmatch(r"[a-z]\w*", name) else json.dumps(name)


if __name__ == "__main__":
    sys.stdout.write(typescript())
