"""torchft's lighthouse, which knows who takes part, with the settings that its documentation starts it with."""

from __future__ import annotations

import signal
import sys

from torchft._torchft import LighthouseServer

_JOIN_MS, _TICK_MS = 10_000, 100
_LEAST = 3
"""Replicas of four without which no step is done. With fewer, the first one that is there would train alone."""


def main() -> None:
    """Runs it at the address that the only argument gives, until it is ended."""
    server = LighthouseServer(bind=sys.argv[1], min_replicas=_LEAST, join_timeout_ms=_JOIN_MS, quorum_tick_ms=_TICK_MS)
    sys.stdout.write(f"{server.address()}\n")
    sys.stdout.flush()
    signal.pause()


if __name__ == "__main__":
    main()
