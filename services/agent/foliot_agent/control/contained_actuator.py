"""An actuator of an extension, held so that its failures end nothing else of the agent."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

import structlog

from foliot.runtime.extension_failures import ExtensionFailures

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from foliot_agent.actuators.base import Actuator
    from foliot_agent.kernel.dry_run import Change
    from foliot_schemas import Confirmation, Node, Placement

log = structlog.get_logger()

_AGAIN_S, _LONGEST_AGAIN_S = 1.0, 60.0
"""Wait before what it could not do is tried again; each time twice as long, up to the longest."""


class ContainedActuator:
    """See `Actuator`. It tries again what it could not start, join or leave; until then placements that need it are refused.

    Parameters:
        traffic: its class.
        make: makes it, for each attempt to start it anew.
    """

    def __init__(self, traffic: str, make: Callable[[], Actuator]) -> None:
        self.traffic = traffic
        self._make = make
        self._actuator: Actuator | None = None
        """Started; None: it could not be."""
        self._owed: dict[str, tuple[Node, bool]] = {}
        """By name, peers that it has not been told of yet, and whether they come or go."""
        self._reason = ""
        """The reason of its last failure."""
        self._failures = ExtensionFailures()
        self._wait_s = _AGAIN_S
        self._turn = asyncio.Lock()
        self._trying: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Starts it, now or later."""
        await self._catch_up()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Tries nothing any more."""
        if self._trying is not None:
            self._trying.cancel()
        if self._actuator is not None:
            try:
                await self._actuator.__aexit__(None, None, None)
            except Exception as error:  # noqa: BLE001 - whatever it is, the agent goes on
                self._note(error)

    async def join(self, peer: Node) -> None:
        """Tells it of a peer, now or later."""
        self._owed[peer.name] = peer, True
        await self._catch_up(peer.name)

    async def leave(self, peer: Node) -> None:
        """Tells it that a peer has left, now or later; not at all of a peer that it has never taken."""
        _, comes = self._owed.pop(peer.name, (peer, False))
        if not comes:
            self._owed[peer.name] = peer, False
            await self._catch_up(peer.name)

    def check(self, placement: Placement) -> str:
        """The objection of the actuator, or that it has not started or does not know the peer."""
        if self._actuator is None:
            return f"the actuator of {self.traffic} has not started: {self._reason}"
        if placement.peer in self._owed:
            return f"the actuator of {self.traffic} has not taken {placement.peer}: {self._reason}"
        return self._actuator.check(placement)

    def present(self, placements: Iterable[Placement]) -> tuple[Placement, ...]:
        """Placements in force; none before it has started."""
        return () if self._actuator is None else self._actuator.present(placements)

    async def set_placements(self, placements: Iterable[Placement]) -> None:
        """Puts placements in force that `check` has passed."""
        assert self._actuator is not None
        await self._actuator.set_placements(placements)

    async def confirm(self, placements: Iterable[Placement]) -> list[Confirmation]:
        """Confirmations; none before it has started."""
        return [] if self._actuator is None else await self._actuator.confirm(placements)

    async def rehearse(self) -> tuple[Change, ...]:
        """Rehearses one that is not started."""
        return await self._make().rehearse()

    async def _catch_up(self, *peers: str) -> None:
        """Starts it, and tells it of these peers, or of all that it was not told of. What fails is tried again."""
        async with self._turn:
            try:
                if self._actuator is None:
                    self._actuator = await self._make().__aenter__()
                    peers = ()
            except Exception as error:  # noqa: BLE001 - whatever it is, the agent goes on
                self._note(error)
            else:
                for name in peers or tuple(self._owed):
                    await self._tell(name)
        if self._actuator is not None and not self._owed:
            self._wait_s = _AGAIN_S
        elif self._trying is None or self._trying.done() or self._trying is asyncio.current_task():
            self._trying = asyncio.get_running_loop().create_task(self._later())

    async def _tell(self, name: str) -> None:
        owed = self._owed.get(name)
        if owed is None or self._actuator is None:
            return
        peer, comes = owed
        try:
            await (self._actuator.join(peer) if comes else self._actuator.leave(peer))
        except Exception as error:  # noqa: BLE001 - as above
            self._note(error)
        else:
            if self._owed.get(name) is owed:
                del self._owed[name]

    async def _later(self) -> None:
        await asyncio.sleep(self._wait_s)
        self._wait_s = min(2 * self._wait_s, _LONGEST_AGAIN_S)
        await self._catch_up()

    def _note(self, error: Exception) -> None:
        self._reason = f"{type(error).__name__}: {error}"
        now_ns = round(asyncio.get_running_loop().time() * 1e9)
        self._failures.note(self.traffic, error, now_ns)
        for traffic, reason, failures, _ in self._failures.news(now_ns):
            log.error("actuator_failed", traffic=traffic, reason=reason, failures=failures)
