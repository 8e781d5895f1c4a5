"""Disturbances of a simulated fleet that are no path's fault, drawn at random and scheduled."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from foliot_lab.simulate.bus import Delay
from foliot_lab.simulate.fleet import CENTRAL
from foliot_lab.simulate.loop import MS, SECOND
from foliot_lab.simulate.node_clocks import Setting
from foliot_lab.simulate.periods import spells
from foliot_lab.simulate.processors import Cores, Span
from foliot_lab.simulate.transit import SMALL_BYTES, Load

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from foliot_lab.simulate.fleet import Fleet
    from foliot_lab.simulate.probe import Probe

_LASTING_NS = 3 * SECOND
_LONGER_NS = {"job": 12 * SECOND, "incast": 12 * SECOND, "mixed": 6 * SECOND}
"""The length of disturbances that cause losses. Some hundred probes judge a loss, which are eight seconds of a path
in use."""
_HALT_MS = (100.0, 400.0)
_STEAL_MS = (20.0, 300.0)
_BUS_MS = (20.0, 400.0)
_HOG = (0.5, 0.95)
_CORES, _WANTED = 2, 0.47
"""Processors of a machine that carries all hosts, and the share of a core that the hosts want together. The share
holds at the speed for which costs were noted."""
_IDLE = (0.05, 0.3)
_PAUSE_MS = (60.0, 600.0)
"""The time from the end of one halt to the next."""
_STEP_MS = (0.0, 10.0)
"""The time from the beginning of a tick until its reports have left, with a margin."""
_STEPS_NS = (2 * MS, 5 * SECOND)
_UNAWARE_NS, _LEARNING_NS = 2 * SECOND, 1 * SECOND
"""The next window shows a step. The clock is then not synchronised until the window after it has been fitted."""
_PERIOD_MS = (50.0, 1_500.0)
"""The time from one full queue to the next. TCP flows that fill a link fill and drain the queue before it in less
than two seconds."""
_FULL = (0.02, 0.9)
_SMALL_LOST = 0.01
"""The greatest share of small probes lost over all, because TCP slows down if it loses more. In an incast in the lab
it was 0.4 %; a probe may meet two such queues."""
_LOW = (0.0, 0.9)
_PACKET_BYTES = (1_514, 65_550)
"""From a packet of the MTU to the largest that is segmented behind the queue."""


def lasting_ns(kind: str) -> int:
    """The length of a disturbance, in ns."""
    return _LONGER_NS.get(kind, _LASTING_NS)


def disturb(kind: str, fleet: Fleet, chance: random.Random, *, spare: frozenset[str] = frozenset()) -> str:
    """Disturbs the fleet from now on for `lasting_ns`; returns the details in words.

    Parameters:
        spare: NICs that this does not take away.
    """
    span = Span(fleet.loop.now_ns, fleet.loop.now_ns + lasting_ns(kind))
    return _KINDS[kind](fleet, chance, span, spare)


def _nothing(_fleet: Fleet, _chance: random.Random, _span: Span, _spare: frozenset[str]) -> str:
    return ""


def _hog_one(fleet: Fleet, chance: random.Random, span: Span, _spare: frozenset[str]) -> str:
    name, share = chance.choice([*fleet.hosts]), chance.uniform(*_HOG)
    fleet.hosts[name].hog(span, share)
    return f"{name} {share:.2f}"


def _hog_all(fleet: Fleet, chance: random.Random, span: Span, _spare: frozenset[str]) -> str:
    share = chance.uniform(*_HOG)
    for host in fleet.hosts.values():
        host.hog(span, share)
    return f"{share:.2f}"


def _slow(fleet: Fleet, chance: random.Random, _span: Span, _spare: frozenset[str]) -> str:
    idle = chance.uniform(*_IDLE)
    cores = Cores(_CORES, _WANTED / (_CORES * (1.0 - idle)))
    for host in fleet.hosts.values():
        host.cores = cores
    return f"{idle:.2f} idle"


def _spells(chance: random.Random, span: Span, lasting_ms: tuple[float, float], beside: Probe | None) -> list[Span]:
    """Times of standing still.

    Half of those that concern a probe begin within its step, which takes a tenth of the time.
    """

    def begin(at_ms: float) -> float:
        if beside is None or chance.random() >= 0.5:
            return at_ms
        return (beside.tick_after(span.since_ns + round(at_ms * MS)) - span.since_ns) / MS + chance.uniform(*_STEP_MS)

    return [
        Span(span.since_ns + round(at_ms * MS), span.since_ns + round((at_ms + for_ms) * MS))
        for at_ms, for_ms in spells(chance, (span.until_ns - span.since_ns) / MS, lasting_ms, _PAUSE_MS, begin)
    ]


def _told(whole: Span, spans: list[Span]) -> str:
    return " ".join(f"{(since - whole.since_ns) / MS:.1f}+{(until - since) / MS:.0f}" for since, until in spans) + " ms"


def _halts(fleet: Fleet, chance: random.Random, span: Span, who: str, beside: Probe | None = None) -> str:
    halts = _spells(chance, span, _HALT_MS, beside)
    for each in halts:
        fleet.processes[who].halted.add(each)
    return f"{who} {_told(span, halts)}"


def _halt_probe(fleet: Fleet, chance: random.Random, span: Span, _spare: frozenset[str]) -> str:
    probe = chance.choice(fleet.probes)
    return _halts(fleet, chance, span, f"{probe.name}/probe", probe)


def _halt_agent(fleet: Fleet, chance: random.Random, span: Span, _spare: frozenset[str]) -> str:
    return _halts(fleet, chance, span, f"{chance.choice(fleet.inventory.names)}/agent")


def _halt_central(who: str, fleet: Fleet, chance: random.Random, span: Span, _spare: frozenset[str]) -> str:
    return _halts(fleet, chance, span, who)


def _steal(fleet: Fleet, chance: random.Random, span: Span, names: list[str], beside: Probe | None) -> str:
    times = _spells(chance, span, _STEAL_MS, beside)
    for each in times:
        for name in names:
            fleet.hosts[name].stolen.add(each)
    return _told(span, times)


def _steal_one(fleet: Fleet, chance: random.Random, span: Span, _spare: frozenset[str]) -> str:
    name = chance.choice([*fleet.hosts])
    beside = next((probe for probe in fleet.probes if probe.name == name), None)
    return f"{name} {_steal(fleet, chance, span, [name], beside)}"


def _steal_all(fleet: Fleet, chance: random.Random, span: Span, _spare: frozenset[str]) -> str:
    return _steal(fleet, chance, span, [*fleet.hosts], chance.choice(fleet.probes))


def _slow_bus(fleet: Fleet, chance: random.Random, span: Span, nodes: frozenset[str]) -> str:
    least_ms, most_ms = sorted((chance.uniform(0, _BUS_MS[1] / 2), chance.uniform(*_BUS_MS)))
    fleet.bus.delay(Delay(span, nodes, round(least_ms * MS), round(most_ms * MS)))
    return f"{least_ms:.0f} to {most_ms:.0f} ms"


def _bus_one(fleet: Fleet, chance: random.Random, span: Span, _spare: frozenset[str]) -> str:
    name = chance.choice([*fleet.inventory.names, *CENTRAL[1:]])
    return f"{name} {_slow_bus(fleet, chance, span, frozenset({name}))}"


def _bus_all(fleet: Fleet, chance: random.Random, span: Span, _spare: frozenset[str]) -> str:
    return _slow_bus(fleet, chance, span, frozenset(fleet.inventory.names))


def _early(span: Span, chance: random.Random) -> int:
    return span.since_ns + round(chance.uniform(0.0, 0.3) * (span.until_ns - span.since_ns))


def _clock_step(fleet: Fleet, chance: random.Random, span: Span, _spare: frozenset[str]) -> str:
    number = chance.randrange(len(fleet.clocks))
    clock, now_ns = fleet.clocks[number], _early(span, chance)
    least_ns, most_ns = _STEPS_NS
    step_ns = round(least_ns * (most_ns / least_ns) ** chance.random()) * chance.choice((-1, 1))
    before_ns, bound_ns = clock.now_ns(now_ns) - now_ns, clock.bound_ns(now_ns)
    unaware_ns = round(chance.uniform(0.1, 1.0) * _UNAWARE_NS)
    clock.set(
        Setting(now_ns, before_ns + step_ns, bound_ns),
        Setting(now_ns + unaware_ns, before_ns + step_ns, -1),
        Setting(now_ns + unaware_ns + _LEARNING_NS, before_ns, bound_ns),
    )
    return f"{fleet.inventory.names[number]} {step_ns / MS:.1f} ms"


def _filled(fleet: Fleet, chance: random.Random, span: Span, nics: frozenset[str]) -> str:
    """Fills the queues at these NICs; returns that in words."""
    (least_ms, most_ms), (small, large) = _PERIOD_MS, _PACKET_BYTES
    period_ms, packet_bytes = (
        least_ms * (most_ms / least_ms) ** chance.random(),
        small * (large / small) ** chance.random(),
    )
    full = chance.uniform(_FULL[0], min(_FULL[1], _SMALL_LOST * packet_bytes / SMALL_BYTES))
    load = Load(span, nics, round(period_ms * MS), full, chance.uniform(*_LOW), round(packet_bytes))
    fleet.fabric.load(load)
    return f"{load.full:.2f} of {period_ms:.0f} ms full of {load.packet_bytes} bytes, else {load.low:.2f}"


def _job(fleet: Fleet, chance: random.Random, span: Span, _spare: frozenset[str]) -> str:
    return _filled(fleet, chance, span, frozenset(fleet.inventory.nics))


def _incast(fleet: Fleet, chance: random.Random, span: Span, _spare: frozenset[str]) -> str:
    nic = chance.choice(fleet.inventory.nics)
    return f"{nic} {_filled(fleet, chance, span, frozenset({nic}))}"


def _nic_lost(fleet: Fleet, chance: random.Random, span: Span, spare: frozenset[str]) -> str:
    nic = chance.choice([nic for nic in fleet.inventory.nics if nic not in spare])
    fleet.lose_carrier(nic, _early(span, chance))
    return nic


def _mixed(fleet: Fleet, chance: random.Random, span: Span, spare: frozenset[str]) -> str:
    kinds = chance.sample([kind for kind in _KINDS if kind not in {"nothing", "mixed"}], 2)
    return " and ".join(f"{kind} {_KINDS[kind](fleet, chance, span, spare)}" for kind in kinds)


_KINDS: dict[str, Callable[[Fleet, random.Random, Span, frozenset[str]], str]] = {
    "nothing": _nothing,
    "hog-one": _hog_one,
    "hog-all": _hog_all,
    "slow": _slow,
    "halt-probe": _halt_probe,
    "halt-agent": _halt_agent,
    "halt-detector": partial(_halt_central, "detector"),
    "halt-remediator": partial(_halt_central, "remediator"),
    "halt-nats": partial(_halt_central, "nats"),
    "steal-one": _steal_one,
    "steal-all": _steal_all,
    "bus-one": _bus_one,
    "bus-all": _bus_all,
    "clock-step": _clock_step,
    "job": _job,
    "incast": _incast,
    "nic-lost": _nic_lost,
    "mixed": _mixed,
}
KINDS = tuple(_KINDS)
