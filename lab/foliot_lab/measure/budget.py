"""The processor time that a scenario needs, compared with the time that the machine has to spare, before the build."""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec

from foliot_lab.measure.machine import QUICK_WORK_S, CpuTimes, fixed_work_s
from foliot_lab.scenario.job_traffic import sent_mbps

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from foliot_lab.scenario.spec import Scenario


class Demand(NamedTuple):
    """The condition under which a machine has enough for a scenario."""

    left: float
    """Share of the processors that must be left idle."""
    yielded: float
    """Share of the processor time of other processes that counts as the lab's, because they make room for it."""


COMFORTABLE = Demand(left=0.4, yielded=0.0)
"""The demo's demand: so much that the services hardly ever wait for a processor."""
CARRIED = Demand(left=0.05, yielded=0.5)
"""The least demand with which a scenario or a bench may begin. With less, every queue grows, and the measurement
shows the queue. The scheduler shares processors out evenly. The lab is many processes, so it gets its share of the
time that few others use."""

# Measured on a machine where `fixed_work_s` is QUICK_WORK_S. The scenarios had two, four and eight hosts on two rails,
# and each NIC sent half of its link's rate. All processes together kept 0.27, 0.49 and 0.87 processors busy.
_ONCE, _PER_HOST, _PER_NIC, _PER_PATH = 0.11, 0.026, 0.0265, 0.0008
"""Processors kept busy: by the central services and the lab, by each host, by each NIC, and by each NIC's paths. The
last counts per other NIC of the same rail."""
_PER_BUS_SERVER = 0.04
"""Processors kept busy by each bus server beyond the first."""
_PER_GBPS, _INTERRUPTS_PER_GBPS = 0.02, 0.1
"""Processors kept busy by each Gb/s of the workload: in the sending process, and in interrupts, which no process is
charged for."""
_WATCH_S, _WORKS = 1.0, 3
_PATIENCE_S, _TRY_AGAIN_S = 60.0, 2.0


class CannotCarryError(RuntimeError):
    """This machine cannot carry what the scenario asks for; the message says why."""


class Cost(NamedTuple):
    """Processors that a scenario keeps busy."""

    processes: float
    interrupts: float
    """Processors busy in the kernel, without a process that is charged for the time."""


class ProcessLoad(NamedTuple):
    """A load of processes without a scenario, such as a bench of single processes."""

    name: str
    """Its name, as the beginning of a sentence."""
    processors: float
    """Processors that it keeps busy, on the machine where the costs below were measured."""
    lower: str = ""
    """The number to lower, so that it costs less; empty: nothing helps."""


Costly = TypeVar("Costly", "Scenario", ProcessLoad, "Scenario | ProcessLoad")


class Now(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the machine before any part of a lab runs."""

    idle_cpu: float
    """Share of all processors' time that is idle."""
    stolen_cpu: float
    """Share of the processors' working time that the hypervisor takes."""
    fixed_work_s: float
    """Processor time of a fixed piece of work, see `machine.fixed_work_s`."""
    processors: int
    """Processors that this process may use."""
    speed: float = 1.0
    """Share of these processors that a quota allows; 1: there is none."""

    @classmethod
    def look(cls, speed: float = 1.0) -> Now:
        """Measures the machine: watches for a second, and then works for about as long."""
        before = CpuTimes.read()
        time.sleep(_WATCH_S)
        between = CpuTimes.read()
        work_s = statistics.fmean(fixed_work_s() for _ in range(_WORKS))
        return cls(
            idle_cpu=before.idle_share(between), stolen_cpu=between.stolen_from_work_share(CpuTimes.read()),
            fixed_work_s=work_s,
            processors=len(os.sched_getaffinity(0)), speed=speed,
        )  # fmt: skip

    @classmethod
    def glance(cls, speed: float = 1.0) -> Now:
        """Measures the machine like `look`, but watches it only while it works: for a start that this does not decide.

        Its own work counts as idle time. Where no processor is idle, that work is time taken from others. So it works
        once.
        """
        before, own_s, began_s = CpuTimes.read(), time.process_time(), time.monotonic()
        work_s = fixed_work_s()
        after, own_s, passed_s = CpuTimes.read(), time.process_time() - own_s, time.monotonic() - began_s
        own_cpu = own_s / (passed_s * (os.cpu_count() or 1))
        return cls(
            idle_cpu=min(before.idle_share(after) + own_cpu, 1.0), stolen_cpu=before.stolen_from_work_share(after),
            fixed_work_s=work_s,
            processors=len(os.sched_getaffinity(0)), speed=speed,
        )  # fmt: skip

    def cost(self, scenario: Scenario | ProcessLoad) -> Cost:
        """The cost of a scenario or load on this machine."""
        return Cost(*(busy * self.fixed_work_s / QUICK_WORK_S for busy in cost(scenario)))

    def left_by(self, scenario: Scenario | ProcessLoad) -> float:
        """Share of the processors, or of the quota, that a scenario or load would leave idle.

        Below zero: it needs more than exists.
        """
        processes, interrupts = (busy / self.processors for busy in self.cost(scenario))
        taken = (processes + interrupts) / max(1 - self.stolen_cpu, 0.01)
        return min(self.idle_cpu - taken, self.speed - processes) / self.speed

    def lacks(self, scenario: Scenario | ProcessLoad, demand: Demand = CARRIED) -> str:
        """The reason why this machine cannot carry a scenario or load now, in a sentence; empty if it can."""
        yielding = msgspec.structs.replace(self, idle_cpu=self.idle_cpu + demand.yielded * (1 - self.idle_cpu))
        if yielding.left_by(scenario) >= demand.left:
            return ""
        needed = sum(self.cost(scenario))
        lower = scenario.lower if isinstance(scenario, ProcessLoad) else "hosts, rails or load"
        advice = f"Lower {lower}, or let less else run." if lower else "Let less else run."
        quota = "" if self.speed >= 1 else f", of which it may use {self.speed:.0%}"
        return (
            f"{named(scenario)} would keep {needed:.2g} of this machine's {self.processors} processors busy{quota}, "
            f"and {demand.left:.0%} must be left:"
            f" {self.idle_cpu:.0%} are idle now, {self.stolen_cpu:.0%} of busy time is stolen, and a piece of work "
            f"that takes {QUICK_WORK_S:.2f} s on a quick machine"
            f" takes {self.fixed_work_s:.2f} s here. {advice}"
        )


def cost(scenario: Scenario | ProcessLoad) -> Cost:
    """The cost of a scenario or load on the machine where the costs were measured.

    The computation of a training job is not in it: the job takes the time that is left, at a lower priority.
    """
    if isinstance(scenario, ProcessLoad):
        return Cost(scenario.processors, 0.0)
    fabric, gbps = scenario.fabric, traffic_gbps(scenario)
    nics = fabric.hosts * fabric.rails
    once = _ONCE + _PER_BUS_SERVER * (fabric.bus_servers - 1)
    nodes = _PER_HOST * fabric.hosts + _PER_NIC * nics + _PER_PATH * nics * (fabric.hosts - 1)
    return Cost(once + nodes + _PER_GBPS * gbps, _INTERRUPTS_PER_GBPS * gbps)


def traffic_gbps(scenario: Scenario) -> float:
    """The workload's traffic in all, or that of all jobs at once, which no link carries faster than its rate.

    A training job's links are full as long as its ranks reduce gradients.
    """
    fabric, workload = scenario.fabric, scenario.workload
    if scenario.jobs:
        nics: defaultdict[str, float] = defaultdict(float)
        for job in scenario.jobs:
            for nic, mbps in sent_mbps(job, fabric).items():
                nics[nic] += mbps
        return sum(min(mbps, fabric.link_mbps) for mbps in nics.values()) / 1000
    load = {"none": 0.0, "train": 1.0}.get(workload.kind, workload.load)
    return fabric.hosts * fabric.rails * fabric.link_mbps * load / 1000


def named(scenario: Scenario | ProcessLoad) -> str:
    """The name of a scenario, by its most expensive numbers; the name of a load of processes."""
    if isinstance(scenario, ProcessLoad):
        return scenario.name
    fabric = scenario.fabric
    return f"A fabric of {fabric.hosts} hosts on {fabric.rails} {'rail' if fabric.rails == 1 else 'rails'}"


def affordable(
    choices: Sequence[tuple[Costly, Demand]], speed: float = 1.0, say: Callable[[str], object] | None = None
) -> tuple[Costly, Now]:
    """The first of these choices that this machine has enough for, and the machine as it was seen.

    If other processes leave too little for any, it waits a while for them to end.

    Parameters:
        choices: scenarios or loads, each with its demand.
        speed: the share of all processors that a quota allows.
        say: called with the reason for waiting; stderr, unless given.

    Raises:
        CannotCarryError: the machine has enough for none of them; the message has the reason for the last one.
    """
    deadline_s, told = time.monotonic() + _PATIENCE_S, False
    while True:
        now, problem = Now.look(speed), ""
        for scenario, demand in choices:
            problem = now.lacks(scenario, demand)
            if not problem:
                return scenario, now
        alone = msgspec.structs.replace(now, idle_cpu=1.0, stolen_cpu=0.0)
        if time.monotonic() > deadline_s or alone.lacks(*choices[-1]):
            raise CannotCarryError(problem)
        if not told:
            (say or sys.stderr.write)(f"waiting for up to {_PATIENCE_S:.0f} s for a better moment: {problem}\n")
        told = True
        time.sleep(_TRY_AGAIN_S)
