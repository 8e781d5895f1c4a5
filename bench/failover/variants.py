"""What is done to the job's links, in each run of the bench: faults of the lab's own kinds, in seconds since the job's first counted step."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from foliot_lab.scenario import FaultSpec

if TYPE_CHECKING:
    from collections.abc import Callable

_AT_S = 8.0
"""Steps before, to compare with."""


class Variant(NamedTuple):
    """A run's faults."""

    name: str
    faults: Callable[[str, str, str], tuple[FaultSpec, ...]]
    """Of a host, the rail in trouble and the other one."""
    steps: int
    """That the job does: long enough for the fault, the way back and some more at half of the capacity."""


def _link(kind: str, for_s: float, **more: float) -> Callable[[str, str, str], tuple[FaultSpec, ...]]:
    def faults(host: str, rail: str, _other: str) -> tuple[FaultSpec, ...]:
        return (FaultSpec(id="f1", at_s=_AT_S, kind=kind, where=f"{host}.{rail}", for_s=for_s, **more),)  # type: ignore[arg-type]

    return faults


def _ten_flaps(host: str, rail: str, _other: str) -> tuple[FaultSpec, ...]:
    return (FaultSpec(id="f1", at_s=_AT_S, kind="flap", where=f"{host}.{rail}", times=10, down_s=0.5, up_s=0.5),)


def _one_after_other(host: str, rail: str, other: str) -> tuple[FaultSpec, ...]:
    """The second goes when the first is back, and traffic is on it or on its way to it."""
    return (
        FaultSpec(id="f1", at_s=_AT_S, kind="link-down", where=f"{host}.{rail}", for_s=10.0),
        FaultSpec(id="f2", at_s=_AT_S + 20.0, kind="link-down", where=f"{host}.{other}", for_s=10.0),
    )


def _bus_away(host: str, rail: str, _other: str) -> tuple[FaultSpec, ...]:
    """Nobody can be asked when the carrier goes, nor when it is back: agents have what they were armed with. What comes of it counts up to 20 s after the healing."""
    return (
        FaultSpec(id="f1", at_s=_AT_S + 38.0, kind="link-down", where=f"{host}.{rail}", for_s=15.0),
        FaultSpec(id="bus", at_s=_AT_S, kind="kill", where="nats", for_s=60.0),
    )


def _uplink(_host: str, rail: str, _other: str) -> tuple[FaultSpec, ...]:
    return (FaultSpec(id="f1", at_s=_AT_S, kind="drop", where=f"{rail}.leaf0-spine0", for_s=15.0),)


def _spine(_host: str, rail: str, _other: str) -> tuple[FaultSpec, ...]:
    return tuple(
        FaultSpec(id=f"f{leaf + 1}", at_s=_AT_S, kind="drop", where=f"{rail}.leaf{leaf}-spine0", for_s=15.0)
        for leaf in range(2)
    )


VARIANTS = (
    Variant("30 s link failure", _link("link-down", 30.0), 180),
    Variant("flap of 1 s", _link("link-down", 1.0), 90),
    Variant("flap of 5 s", _link("link-down", 5.0), 100),
    Variant("ten flaps", _ten_flaps, 150),
    Variant("both rails, one after the other", _one_after_other, 180),
    Variant("the bus away for a minute", _bus_away, 240),
    Variant("silent NIC", _link("drop", 15.0), 130),
    Variant("silent uplink", _uplink, 130),
    Variant("silent spine", _spine, 130),
    Variant("1 % loss one way", _link("loss-one-way", 30.0, share=0.01), 180),
    Variant("a tenth of the rate", _link("rate", 20.0, mbps=20.0), 130),
)
MAIN = VARIANTS[0]
