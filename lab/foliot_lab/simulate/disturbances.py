"""What is done to a simulated fleet that no path is to blame for: drawn by chance, and done at times to come."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foliot_lab.simulate.bus import Delay
from foliot_lab.simulate.clocks import Setting
from foliot_lab.simulate.fabric import Load
from foliot_lab.simulate.fleet import CENTRAL
from foliot_lab.simulate.loop import MS, SECOND
from foliot_lab.simulate.machine import Cores, Span
from foliot_schemas.names import rail_of

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from foliot_lab.simulate.fleet import Fleet
    from foliot_lab.simulate.probe import Probe

DISTURBED_NS = 3 * SECOND
_HALT_MS = (100.0, 400.0)
_STEAL_MS = (20.0, 300.0)
_BUS_MS = (20.0, 400.0)
_HOG = (0.5, 0.95)
_CORES, _WANTED = 2, 0.47
"""Of a machine that carries all hosts; and how much of a core they want together, where it is of the speed for which costs were noted."""
_IDLE = (0.05, 0.3)
_PAUSE_NS = 600 * MS
"""From one halt to the next, at the most."""
_STEP_NS = (0.0, 10.0 * MS)
"""From the beginning of a tick until its reports have left, with room to spare."""
_STEPS_NS = (2 * MS, 5 * SECOND)
_UNAWARE_NS, _LEARNING_NS = 2 * SECOND, 1 * SECOND
"""A step is found out with the next window, and the clock is not synchronised then until the one after has been fitted."""
_MOST_LOST = 0.005
"""Of what comes to a link that TCP flows keep full; a probe may meet two of them."""


def disturb(kind: str, fleet: Fleet, chance: random.Random, *, spare_rail: str = "") -> str:
    """Does it, from now on for `DISTURBED_NS`; returns what exactly, in words.

    Parameters:
        spare_rail: a NIC that is lost is not one of this rail.
    """
    return _KINDS[kind](fleet, chance, spare_rail)


def _nothing(_fleet: Fleet, _chance: random.Random, _spare: str) -> str:
    return ""


def _whole(fleet: Fleet) -> Span:
    return Span(fleet.loop.now_ns, fleet.loop.now_ns + DISTURBED_NS)


def _hog_one(fleet: Fleet, chance: random.Random, _spare: str) -> str:
    name, share = chance.choice([*fleet.hosts]), chance.uniform(*_HOG)
    fleet.hosts[name].hog(_whole(fleet), share)
    return f"{name} {share:.2f}"


def _hog_all(fleet: Fleet, chance: random.Random, _spare: str) -> str:
    share = chance.uniform(*_HOG)
    for host in fleet.hosts.values():
        host.hog(_whole(fleet), share)
    return f"{share:.2f}"


def _slow(fleet: Fleet, chance: random.Random, _spare: str) -> str:
    idle = chance.uniform(*_IDLE)
    cores = Cores(_CORES, _WANTED / (_CORES * (1.0 - idle)))
    for host in fleet.hosts.values():
        host.cores = cores
    return f"{idle:.2f} idle"


def _spells(fleet: Fleet, chance: random.Random, lasting_ms: tuple[float, float], beside: Probe | None) -> list[Span]:
    """Times of standing still. Half of those that concern a probe begin within its step, which takes a tenth of the time."""
    spells = []
    at_ns, end_ns = fleet.loop.now_ns + round(chance.uniform(0, _PAUSE_NS)), fleet.loop.now_ns + DISTURBED_NS
    while at_ns < end_ns:
        if beside is not None and chance.random() < 0.5:
            at_ns = beside.tick_after(at_ns) + round(chance.uniform(*_STEP_NS))
        spells.append(Span(at_ns, at_ns + round(chance.uniform(*lasting_ms) * MS)))
        at_ns = spells[-1].until_ns + round(chance.uniform(0.1, 1.0) * _PAUSE_NS)
    return spells


def _told(fleet: Fleet, spells: list[Span]) -> str:
    now_ns = fleet.loop.now_ns
    return " ".join(f"{(since - now_ns) / MS:.1f}+{(until - since) / MS:.0f}" for since, until in spells) + " ms"


def _halts(fleet: Fleet, chance: random.Random, who: str, beside: Probe | None = None) -> str:
    spells = _spells(fleet, chance, _HALT_MS, beside)
    for span in spells:
        fleet.processes[who].halted.add(span)
    return f"{who} {_told(fleet, spells)}"


def _halt_probe(fleet: Fleet, chance: random.Random, _spare: str) -> str:
    probe = chance.choice(fleet.probes)
    return _halts(fleet, chance, f"{probe.name}/probe", probe)


def _halt_agent(fleet: Fleet, chance: random.Random, _spare: str) -> str:
    return _halts(fleet, chance, f"{chance.choice(fleet.inventory.names)}/agent")


def _halt_detector(fleet: Fleet, chance: random.Random, _spare: str) -> str:
    return _halts(fleet, chance, "detector")


def _halt_remediator(fleet: Fleet, chance: random.Random, _spare: str) -> str:
    return _halts(fleet, chance, "remediator")


def _halt_nats(fleet: Fleet, chance: random.Random, _spare: str) -> str:
    return _halts(fleet, chance, "nats")


def _steal(fleet: Fleet, chance: random.Random, names: list[str], beside: Probe | None) -> str:
    spells = _spells(fleet, chance, _STEAL_MS, beside)
    for span in spells:
        for name in names:
            fleet.hosts[name].stolen.add(span)
    return _told(fleet, spells)


def _steal_one(fleet: Fleet, chance: random.Random, _spare: str) -> str:
    name = chance.choice([*fleet.hosts])
    beside = next((probe for probe in fleet.probes if probe.name == name), None)
    return f"{name} {_steal(fleet, chance, [name], beside)}"


def _steal_all(fleet: Fleet, chance: random.Random, _spare: str) -> str:
    return _steal(fleet, chance, [*fleet.hosts], chance.choice(fleet.probes))


def _slow_bus(fleet: Fleet, chance: random.Random, nodes: frozenset[str]) -> str:
    least_ms, most_ms = sorted((chance.uniform(0, _BUS_MS[1] / 2), chance.uniform(*_BUS_MS)))
    fleet.bus.delay(Delay(_whole(fleet), nodes, round(least_ms * MS), round(most_ms * MS)))
    return f"{least_ms:.0f} to {most_ms:.0f} ms"


def _bus_one(fleet: Fleet, chance: random.Random, _spare: str) -> str:
    name = chance.choice([*fleet.inventory.names, *CENTRAL[1:]])
    return f"{name} {_slow_bus(fleet, chance, frozenset({name}))}"


def _bus_all(fleet: Fleet, chance: random.Random, _spare: str) -> str:
    return _slow_bus(fleet, chance, frozenset(fleet.inventory.names))


def _clock_step(fleet: Fleet, chance: random.Random, _spare: str) -> str:
    number = chance.randrange(len(fleet.clocks))
    clock, now_ns = fleet.clocks[number], fleet.loop.now_ns + round(chance.uniform(0, 0.3) * DISTURBED_NS)
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


def _job(fleet: Fleet, chance: random.Random, _spare: str) -> str:
    lost = chance.uniform(0.0, _MOST_LOST)
    fleet.fabric.load(Load(_whole(fleet), frozenset(fleet.inventory.nics), lost))
    return f"{lost:.4f} lost"


def _incast(fleet: Fleet, chance: random.Random, _spare: str) -> str:
    nic, lost = chance.choice(fleet.inventory.nics), chance.uniform(0.0, _MOST_LOST)
    fleet.fabric.load(Load(_whole(fleet), frozenset({nic}), lost))
    return f"{nic} {lost:.4f} lost"


def _nic_lost(fleet: Fleet, chance: random.Random, spare: str) -> str:
    nic = chance.choice([nic for nic in fleet.inventory.nics if rail_of(nic) != spare])
    fleet.lose_carrier(nic, fleet.loop.now_ns + round(chance.uniform(0, 0.3) * DISTURBED_NS))
    return nic


def _mixed(fleet: Fleet, chance: random.Random, spare: str) -> str:
    kinds = chance.sample([kind for kind in _KINDS if kind not in {"nothing", "mixed"}], 2)
    return " and ".join(f"{kind} {_KINDS[kind](fleet, chance, spare)}" for kind in kinds)


_KINDS: dict[str, Callable[[Fleet, random.Random, str], str]] = {
    "nothing": _nothing,
    "hog-one": _hog_one,
    "hog-all": _hog_all,
    "slow": _slow,
    "halt-probe": _halt_probe,
    "halt-agent": _halt_agent,
    "halt-detector": _halt_detector,
    "halt-remediator": _halt_remediator,
    "halt-nats": _halt_nats,
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
