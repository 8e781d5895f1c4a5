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
_CALL_S = 5.0
"""Limit of each call. Until it is over, the agent hears of no other peer."""


class ContainedActuator:
    """See `Actuator`.

    It tries again what it could not start, join or leave; until then placements that need it are refused.

    Parameters:
        traffic: its class.
        make: makes it, for each attempt to start it anew.
    """

    def __init__(self, traffic: str, make: Callable[[], Actuator]) -> None:
        self.traffic = traffic
        self._make = make
        self._actuator: Actuator | None = None
        """Started; None: it could not be."""
        self._taken: dict[str, Node] = {}
        """The peers that it was told of, by name."""
        self._owed: dict[str, Node | None] = {}
        """By name, the peers that it has not been told of yet; None: that the peer has left."""
        self._telling = ""
        """The peer that it is being told of."""
        self._is_slow = False
        """It did not end a call in time. The agent does not wait for it before it has caught up."""
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
                async with asyncio.timeout(_CALL_S):
                    await self._actuator.__aexit__(None, None, None)
            except Exception as error:  # noqa: BLE001 - whatever it is, the agent goes on
                self._note(error)

    async def join(self, peer: Node) -> None:
        """Tells it of a peer, now or later."""
        self._owed[peer.name] = peer
        await self._catch_up(peer.name)

    async def leave(self, peer: Node) -> None:
        """Tells it that a peer has left, now or later; not at all of a peer that it has never taken."""
        if peer.name in {*self._taken, self._telling}:
            self._owed[peer.name] = None
            await self._catch_up(peer.name)
        else:
            self._owed.pop(peer.name, None)

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
        """Starts it, and tells it of these peers, or of all that it was not told of. Failed calls are tried again."""
        is_retry = asyncio.current_task() is self._trying
        if is_retry or not (self._is_slow or self._turn.locked()):
            async with self._turn:
                await self._start_and_tell(peers)
        if self._actuator is not None and not self._owed:
            self._wait_s, self._is_slow = _AGAIN_S, False
        elif self._trying is None or self._trying.done() or is_retry:
            self._trying = asyncio.get_running_loop().create_task(self._later())

    async def _start_and_tell(self, peers: tuple[str, ...]) -> None:
        if self._actuator is None:
            try:
                async with asyncio.timeout(_CALL_S):
                    self._actuator = await self._make().__aenter__()
            except Exception as error:  # noqa: BLE001 - whatever it is, the agent goes on
                self._note(error)
                return
            peers = ()
        for name in peers or tuple(self._owed):
            self._telling = name
            await self._tell(self._actuator, name)
        self._telling = ""

    async def _tell(self, actuator: Actuator, name: str) -> None:
        """Tells it of a peer. Of one that it was told of otherwise before, it is told first that this has left."""
        if name not in self._owed:
            return
        peer, before = self._owed[name], self._taken.get(name)
        try:
            async with asyncio.timeout(_CALL_S):
                if before is not None:
                    await actuator.leave(before)
                    del self._taken[name]
                if peer is not None:
                    await actuator.join(peer)
                    self._taken[name] = peer
        except Exception as error:  # noqa: BLE001 - as above
            self._note(error)
        else:
            if self._owed.get(name) is peer:
                self._owed.pop(name, None)

    async def _later(self) -> None:
        await asyncio.sleep(self._wait_s)
        self._wait_s = min(2 * self._wait_s, _LONGEST_AGAIN_S)
        await self._catch_up()

    def _note(self, error: Exception) -> None:
        if isinstance(error, TimeoutError):
            self._is_slow, error = True, TimeoutError(f"it took more than {_CALL_S:g} s")
        self._reason = f"{type(error).__name__}: {error}"
        now_ns = round(asyncio.get_running_loop().time() * 1e9)
        self._failures.note(self.traffic, error, now_ns)
        for traffic, reason, failures, _ in self._failures.news(now_ns):
            log.error("actuator_failed", traffic=traffic, reason=reason, failures=failures)
