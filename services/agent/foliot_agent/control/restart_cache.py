"""The memory of an agent over its own restart, while the bus may be away.

It has the agent's peers, its answers, the routes of its NICs, and the last orders to give ranks to spares. It is one
small file, written anew when something has changed. Its folder does not outlive the boot; routes do not either.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import structlog

from foliot_agent.core.rank_orders import KeptOrder  # noqa: TC001 - as below
from foliot_schemas import Node, Outcome  # noqa: TC001 - msgspec reads annotations at run time
from foliot_schemas.names import escape

log = structlog.get_logger()

_ANSWERS = 64
"""Commands come again within seconds, if at all. This is more than budgets allow one node in that time."""
_SOON_S = 0.5
"""Wait before peers are written. A fleet that is met at once is a thousand peers, and the file has them all."""


class Remembered(msgspec.Struct, frozen=True, kw_only=True):
    """All that the file holds."""

    boot: str
    peers: tuple[Node, ...] = ()
    answers: tuple[Outcome, ...] = ()
    routes: dict[str, list[dict[str, Any]]] = {}
    """By device, as the kernel had them while it was up."""
    rank_orders: tuple[KeptOrder, ...] = ()
    """The newest of each job, for a while."""


class RestartCache:
    """The file of one node.

    Parameters:
        folder: made if it is not there; empty: nothing is remembered.
        boot: what another boot wrote is forgotten.
    """

    def __init__(self, folder: str, node: str, boot: str) -> None:
        self._path = Path(folder, f"agent-{escape(node)}.json") if folder else None
        self._now = Remembered(boot=boot)
        self._written = self._now
        self._due: asyncio.TimerHandle | None = None

    def recall(self) -> Remembered:
        """The memory of the last run of this boot; empty if there was none, or its file cannot be read."""
        if self._path is not None:
            try:
                found = msgspec.json.decode(self._path.read_bytes(), type=Remembered)
                for peer in found.peers:
                    peer.check()
                for kept in found.rank_orders:
                    kept.order.check()
            except FileNotFoundError:
                pass
            except (OSError, msgspec.MsgspecError, ValueError, RecursionError) as error:
                log.warning("memory_not_read", path=str(self._path), reason=str(error))
            else:
                if found.boot == self._now.boot:
                    self._now = self._written = found
        return self._now

    def keep_peers(self, peers: tuple[Node, ...]) -> None:
        """Keeps the peers. They are written within half a second, with all who come until then."""
        self._now = msgspec.structs.replace(self._now, peers=peers)
        if self._due is None:
            self._due = asyncio.get_running_loop().call_later(_SOON_S, self.flush)

    def flush(self) -> None:
        """Writes now what is still to be written."""
        self._write(self._now)

    def answer(self, command: str) -> Outcome | None:
        """The outcome of a command; None: it is none of the last."""
        return next((each for each in self._now.answers if each.command == command), None)

    def keep_answer(self, outcome: Outcome) -> None:
        """Keeps the outcome of a command."""
        self._write(msgspec.structs.replace(self._now, answers=(*self._now.answers, outcome)[-_ANSWERS:]))

    def keep_routes(self, routes: dict[str, list[dict[str, Any]]]) -> None:
        """Keeps the routes over the NICs."""
        self._write(msgspec.structs.replace(self._now, routes=dict(routes)))

    def keep_rank_orders(self, orders: tuple[KeptOrder, ...]) -> None:
        """Keeps the newest orders to give ranks to spares."""
        self._write(msgspec.structs.replace(self._now, rank_orders=orders))

    def _write(self, remembered: Remembered) -> None:
        """Writes the file whole or not at all: a reader finds the file of before or this one."""
        if self._due is not None:
            self._due.cancel()
            self._due = None
        self._now = remembered
        if self._path is None or remembered == self._written:
            return
        fresh = self._path.with_suffix(".new")
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            fresh.write_bytes(msgspec.json.encode(remembered))
            fresh.replace(self._path)
        except OSError as error:
            log.warning("memory_not_written", path=str(self._path), reason=str(error))
        else:
            self._written = remembered
