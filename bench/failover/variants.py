"""The faults of the job's links in each run of the bench.

They are of the lab's own kinds, in seconds since the job's first counted step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from foliot_lab.scenario.spec import FaultSpec

if TYPE_CHECKING:
    from collections.abc import Callable

_AT_S = 8.0
"""The time before the first fault, for steps to compare with."""


_THROUGHOUT_S = 3_600.0
"""A time longer than any job here."""


class Victim(NamedTuple):
    """The targets of a repetition's faults."""

    host: str
    rail: str
    other: str
    """The rail that is well."""
    leaf: int
    spine: int
    leaves: int
    """The number of leaves of the rail."""


class Variant(NamedTuple):
    """A run's faults."""

    name: str
    faults: Callable[[Victim], tuple[FaultSpec, ...]]
    steps: int
    """Steps of the job. They are enough for the fault, the way back and some more at half of the capacity."""
    of_a_nic: bool = False
    """Whether it takes all of a NIC away, so that the control measures the cost."""


def _link(kind: str, for_s: float, **more: float) -> Callable[[Victim], tuple[FaultSpec, ...]]:
    def faults(victim: Victim) -> tuple[FaultSpec, ...]:
        return (FaultSpec(id="f1", at_s=_AT_S, kind=kind, where=f"{victim.host}.{victim.rail}", for_s=for_s, **more),)  # type: ignore[arg-type]

    return faults


def _ten_flaps(victim: Victim) -> tuple[FaultSpec, ...]:
    where = f"{victim.host}.{victim.rail}"
    return (FaultSpec(id="f1", at_s=_AT_S, kind="flap", where=where, times=10, down_s=0.5, up_s=0.5),)


def _one_after_other(victim: Victim) -> tuple[FaultSpec, ...]:
    """Two faults. The second begins when the first NIC is back, and traffic is on it or on its way to it."""
    return (
        FaultSpec(id="f1", at_s=_AT_S, kind="link-down", where=f"{victim.host}.{victim.rail}", for_s=10.0),
        FaultSpec(id="f2", at_s=_AT_S + 20.0, kind="link-down", where=f"{victim.host}.{victim.other}", for_s=10.0),
    )


def _bus_away(victim: Victim) -> tuple[FaultSpec, ...]:
    """A carrier lost and back while the bus is away, so that agents have only their armed backups.

    The consequences count up to 20 s after the healing.
    """
    return (
        FaultSpec(id="f1", at_s=_AT_S + 38.0, kind="link-down", where=f"{victim.host}.{victim.rail}", for_s=15.0),
        FaultSpec(id="bus", at_s=_AT_S, kind="kill", where="nats", for_s=60.0),
    )


def _down_throughout(victim: Victim) -> tuple[FaultSpec, ...]:
    """A NIC down from the job's first step, which is not counted, until the job is over."""
    where = f"{victim.host}.{victim.rail}"
    return (FaultSpec(id="control", at_s=0.0, kind="link-down", where=where, for_s=_THROUGHOUT_S),)


def _dead_uplink(victim: Victim, leaf: int, number: int) -> FaultSpec:
    where = f"{victim.rail}.leaf{leaf}-spine{victim.spine}"
    return FaultSpec(id=f"f{number}", at_s=_AT_S, kind="drop", where=where, for_s=15.0)


def _uplink(victim: Victim) -> tuple[FaultSpec, ...]:
    return (_dead_uplink(victim, victim.leaf, 1),)


def _spine(victim: Victim) -> tuple[FaultSpec, ...]:
    return tuple(_dead_uplink(victim, leaf, leaf + 1) for leaf in range(victim.leaves))


VARIANTS = (
    Variant("30 s link failure", _link("link-down", 30.0), 180, of_a_nic=True),
    Variant("flap of 1 s", _link("link-down", 1.0), 90, of_a_nic=True),
    Variant("flap of 5 s", _link("link-down", 5.0), 100, of_a_nic=True),
    Variant("ten flaps", _ten_flaps, 150, of_a_nic=True),
    Variant("both rails, one after the other", _one_after_other, 180, of_a_nic=True),
    Variant("the bus away for a minute", _bus_away, 240, of_a_nic=True),
    Variant("silent NIC", _link("drop", 15.0), 130, of_a_nic=True),
    Variant("silent uplink", _uplink, 130),
    Variant("silent spine", _spine, 130),
    Variant("1 % loss one way", _link("loss-one-way", 30.0, share=0.01), 180),
    Variant("a tenth of the rate", _link("rate", 20.0, mbps=20.0), 130),
)
MAIN = VARIANTS[0]
CONTROL = Variant("control: the NIC down from step 0", _down_throughout, 60)
"""The control, not a fault of the table. It measures the cost of half of a host's links, and the others are compared
with it."""
