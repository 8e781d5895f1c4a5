"""Injects each fault of the timeline at its moment, and heals it whatever happens."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import msgspec
import structlog

from foliot_lab.faults.actions import prepare

if TYPE_CHECKING:
    from collections.abc import Callable

    from foliot_lab.fabric.fabric import Fabric
    from foliot_lab.faults.actions import Action
    from foliot_lab.faults.world import World
    from foliot_lab.scenario.spec import FaultSpec, Scenario

log = structlog.get_logger()

_ON_TIME_S = 0.1
"""The greatest lateness of a busy machine's event loop. A later one has stood still."""


class Edge(msgspec.Struct, frozen=True):
    """A moment at which a fault began or ended; a flap has many."""

    at_ns: int
    """By the lab's clock, read right before the kernel was called."""
    down: bool


class Injection(msgspec.Struct, frozen=True, kw_only=True):
    """A fault that was injected, and its times."""

    fault_id: str
    kind: str
    where: str
    injected_ns: int
    healed_ns: int | None = None
    """None: not yet, or it lasts until the end of the run."""
    edges: tuple[Edge, ...]


class ScenarioTime:
    """The seconds of a scenario. They stand still while the lab does, as on a virtual machine that is halted.

    By the clock alone, all that was due meanwhile would come at once. A fault would be over as soon as it began, and
    the witness would not know the ways of before.

    Parameters:
        start_s: the event loop's time at second 0.
    """

    def __init__(self, start_s: float) -> None:
        self._start_s = start_s
        self._skipped = asyncio.Event()

    @property
    def now_s(self) -> float:
        """The second of the scenario that it is."""
        return asyncio.get_running_loop().time() - self._start_s

    async def until(self, at_s: float) -> None:
        """Returns at a second of the scenario. If that is late, all later seconds are as late."""
        while (left_s := at_s - self.now_s) > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._skipped.wait()
        if -left_s > _ON_TIME_S:
            self._start_s -= left_s

    def skip_to(self, at_s: float) -> None:
        """Makes a second to come the present one: what is due before it comes at once, and all later as much sooner."""
        self._start_s -= max(at_s - self.now_s, 0.0)
        self._skipped.set()
        self._skipped = asyncio.Event()


async def run_timeline(
    scenario: Scenario, seconds: ScenarioTime, fabric: Fabric, world: World, *,
    clock: Callable[[], int], report: Callable[[Injection], None] = lambda _: None,
) -> list[Injection]:  # fmt: skip
    """Do all faults of a scenario; returns when the last has healed, or at the end of the run if one lasts so long.

    `report` is called after every edge with all injections so far. If cancelled, it heals every fault that is still on.

    Raises:
        ExceptionGroup: a fault could not be done; the others have been healed.
    """
    actions = [prepare(fault, scenario.fabric, fabric, world) for fault in scenario.faults]
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(_run(fault, action, seconds, scenario.duration_s, clock=clock, report=report))
            for fault, action in zip(scenario.faults, actions, strict=True)
        ]
    return [task.result() for task in tasks]


def moments(fault: FaultSpec) -> list[tuple[float, float | None]]:
    """The times at which a fault begins and ends, in seconds of the scenario; None: it lasts to the end of the run."""
    if fault.times is None or fault.down_s is None or fault.up_s is None:
        return [(fault.at_s, None if fault.lasts_s is None else fault.at_s + fault.lasts_s)]
    starts = [fault.at_s + flap * (fault.down_s + fault.up_s) for flap in range(fault.times)]
    return [(start, start + fault.down_s) for start in starts]


async def _run(
    fault: FaultSpec, action: Action, seconds: ScenarioTime, duration_s: float, *,
    clock: Callable[[], int], report: Callable[[Injection], None],
) -> Injection:  # fmt: skip
    edges: list[Edge] = []
    for down_s, up_s in moments(fault):
        await seconds.until(down_s)
        healed = False
        try:
            at_ns = clock()
            action.inject()
            edges.append(Edge(at_ns, down=True))
            report(_injection(fault, edges))
            if action.before_heal is not None and fault.for_s is not None:
                await seconds.until(down_s + fault.for_s)
                action.before_heal()
            await seconds.until(duration_s if up_s is None else up_s)
            if up_s is not None:
                at_ns = clock()
                action.heal()
                healed = True
                edges.append(Edge(at_ns, down=False))
                report(_injection(fault, edges))
        finally:
            if not healed:
                _heal_anyway(fault, action)
    return _injection(fault, edges)


def _injection(fault: FaultSpec, edges: list[Edge]) -> Injection:
    over = not edges[-1].down and len(edges) == 2 * len(moments(fault))
    return Injection(
        fault_id=fault.id, kind=fault.kind, where=fault.where, injected_ns=edges[0].at_ns,
        healed_ns=edges[-1].at_ns if over else None, edges=tuple(edges),
    )  # fmt: skip


def _heal_anyway(fault: FaultSpec, action: Action) -> None:
    """Heals one fault, whatever happens.

    At the end of a run parts of the lab may be gone. Trouble with one fault must not keep the next from healing.
    """
    try:
        action.heal()
    except Exception as error:  # noqa: BLE001 - see above; it is logged, and the namespaces go with the lab anyway
        log.warning("fault_not_healed", fault=fault.id, where=fault.where, error=str(error))
