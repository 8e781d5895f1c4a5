"""Disturbances of a lab that are no path's fault, drawn at random, each as a list of actions that begin and end.

The kinds are those of the simulated fleet, as near as one machine can have them. A hog on one processor stands for that
of one host. Halted processes stand for stolen processors, although the kernel goes on. A bus that is cut for some
tenths of a second stands for a slow one: its messages come later.
"""

from __future__ import annotations

import asyncio
import itertools
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from foliot_lab.faults.actions import Action, Hog, prepare
from foliot_lab.scenario.spec import FaultSpec
from foliot_lab.services.job_placement import FLOWS_PORT
from foliot_lab.simulate.periods import spells
from foliot_lab.workload.flow_loop import FlowPlan
from foliot_lab.workload.flows import Flows
from foliot_schemas.names import node_of, rail_of

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from foliot_lab.services.lab import Lab
    from foliot_schemas import Node

DISTURBED_S = 2.0
_HALT_S = (0.1, 0.4)
_STEAL_S = (0.02, 0.3)
_PAUSE_S = (0.3, 0.8)
_HOG = (0.5, 0.95)
_STEPS_S = (0.002, 5.0)
_PORTS = itertools.cycle(range(FLOWS_PORT, FLOWS_PORT + 500))
"""A port for each job, because the last one's connections may not be over yet."""


class TimedAction(NamedTuple):
    """An action with a beginning and an end."""

    at_s: float
    """The beginning, since the disturbance began."""
    for_s: float
    action: Action
    words: str
    lost: str = ""
    """The NIC that it takes away."""


def draw(kind: str, lab: Lab, chance: random.Random, *, spare_rail: str = "") -> list[TimedAction]:
    """A disturbance of this kind.

    Parameters:
        spare_rail: a rail from which it takes no NIC.
    """
    return _KINDS[kind](lab, chance, spare_rail)


async def do(actions: Sequence[TimedAction]) -> None:
    """Does all actions, each at its time. Each that has begun is ended, whatever happens."""
    async with asyncio.TaskGroup() as group:
        for timed in actions:
            group.create_task(_do(timed))


async def _do(timed: TimedAction) -> None:
    await asyncio.sleep(timed.at_s)
    timed.action.inject()
    try:
        await asyncio.sleep(timed.for_s)
    finally:
        timed.action.heal()


def _nothing(_lab: Lab, _chance: random.Random, _spare: str) -> list[TimedAction]:
    return []


def _hog_one(_lab: Lab, chance: random.Random, _spare: str) -> list[TimedAction]:
    share = chance.uniform(*_HOG)
    hog = Hog(share, processors=1)
    return [TimedAction(0.0, DISTURBED_S, Action(hog.start, hog.stop), f"{share:.2f}")]


def _hog_all(_lab: Lab, chance: random.Random, _spare: str) -> list[TimedAction]:
    share = chance.uniform(*_HOG)
    hog = Hog(share)
    return [TimedAction(0.0, DISTURBED_S, Action(hog.start, hog.stop), f"{share:.2f}")]


def _again_and_again(
    chance: random.Random, lasting_s: tuple[float, float], action: Action, what: str
) -> list[TimedAction]:
    times = spells(chance, DISTURBED_S, lasting_s, _PAUSE_S)
    return [TimedAction(at_s, for_s, action, f"{what} {at_s:.3f}+{for_s:.3f}") for at_s, for_s in times]


def _halt(process: str) -> Callable[[Lab, random.Random, str], list[TimedAction]]:
    def drawn(lab: Lab, chance: random.Random, _spare: str) -> list[TimedAction]:
        where = process if process in lab.supervisor.names() else f"{chance.choice(lab.plan.hosts)}/{process}"
        if process == "nats":
            where = next(name for name in lab.plan.central if name.startswith("nats"))
        return _again_and_again(chance, _HALT_S, _stopped(lab, [where]), where)

    return drawn


def _stopped(lab: Lab, places: Sequence[str]) -> Action:
    return Action(partial(_each, lab.world.stop, places), partial(_each, lab.world.resume, places))


def _each(do_to: Callable[[str], None], places: Sequence[str]) -> None:
    for place in places:
        do_to(place)


def _steal_one(lab: Lab, chance: random.Random, _spare: str) -> list[TimedAction]:
    host = chance.choice(lab.plan.hosts)
    return _again_and_again(chance, _STEAL_S, _stopped(lab, [host]), host)


def _steal_all(lab: Lab, chance: random.Random, _spare: str) -> list[TimedAction]:
    return _again_and_again(chance, _STEAL_S, _stopped(lab, lab.supervisor.names()), "all")


def _bus_one(lab: Lab, chance: random.Random, _spare: str) -> list[TimedAction]:
    where = f"{chance.choice((*lab.plan.hosts, 'detector', 'remediator'))}|bus"
    action = Action(partial(lab.world.part, where), partial(lab.world.join, where))
    return _again_and_again(chance, _HALT_S, action, where)


def _bus_all(lab: Lab, chance: random.Random, _spare: str) -> list[TimedAction]:
    # Not by their links. A returned carrier is noticed up to a second late, and TCP then waits for longer still.
    places = [f"{host}|bus" for host in lab.plan.hosts]
    action = Action(partial(_each, lab.world.part, places), partial(_each, lab.world.join, places))
    return _again_and_again(chance, _HALT_S, action, "all")


def _clock_step(lab: Lab, chance: random.Random, _spare: str) -> list[TimedAction]:
    host, (least_s, most_s) = chance.choice(lab.plan.hosts), _STEPS_S
    step_ns = round(1e9 * least_s * (most_s / least_s) ** chance.random()) * chance.choice((-1, 1))
    action = Action(partial(lab.world.step_clock, host, step_ns), partial(lab.world.step_clock, host, -step_ns))
    at_s = chance.uniform(0.0, 0.5)
    return [TimedAction(at_s, DISTURBED_S - at_s, action, f"{host} {step_ns / 1e6:.1f} ms")]


def _job(lab: Lab, _chance: random.Random, _spare: str) -> list[TimedAction]:
    nodes = lab.nodes
    pairs = [(node, nodes[(number + 1) % len(nodes)]) for number, node in enumerate(nodes)]
    return [_flows(lab, [(*pair, nic.rail) for pair in pairs for nic in pair[0].nics], "ring")]


def _incast(lab: Lab, chance: random.Random, _spare: str) -> list[TimedAction]:
    destination = chance.choice(lab.nodes)
    rail = chance.choice(destination.nics).rail
    ends = [(node, destination, rail) for node in lab.nodes if node.name != destination.name]
    return [_flows(lab, ends, f"{destination.name}.{rail}")]


def _flows(lab: Lab, ends: Sequence[tuple[Node, Node, str]], words: str) -> TimedAction:
    """Flows that may each fill a link."""
    plans = tuple(
        FlowPlan(
            id=f"{source.name}>{destination.name}/{rail}", source=source.name, destination=destination.name, rail=rail,
            source_address=source.nic(rail).service_address, destination_address=destination.nic(rail).service_address,
            bytes_per_s=round(lab.plan.link_mbps * 1e6 / 8),
        )
        for source, destination, rail in ends
    )  # fmt: skip
    running: list[Flows] = []

    def begin() -> None:
        namespaces = {host: lab.fabric.host(host) for host in lab.plan.hosts}
        running.append(Flows.start(plans, namespaces, lab.time, keep_s=2 * DISTURBED_S, port=next(_PORTS)))

    return TimedAction(0.0, DISTURBED_S, Action(begin, lambda: running.pop().stop()), words)


def _nic_lost(lab: Lab, chance: random.Random, spare: str) -> list[TimedAction]:
    nic = chance.choice([f"{host}.{rail}" for host in lab.plan.hosts for rail in lab.plan.rails if rail != spare])
    action = prepare(FaultSpec(at_s=0.0, kind="link-down", where=nic), lab.scenario.fabric, lab.fabric, lab.world)
    at_s = chance.uniform(0.0, 0.5)
    return [TimedAction(at_s, DISTURBED_S - at_s, action, nic, nic)]


def _mixed(lab: Lab, chance: random.Random, spare: str) -> list[TimedAction]:
    kinds = chance.sample([kind for kind in _KINDS if kind not in {"nothing", "mixed"}], 2)
    return [
        timed._replace(words=f"{kind} {timed.words}") for kind in kinds for timed in _KINDS[kind](lab, chance, spare)
    ]  # fmt: skip


_KINDS: dict[str, Callable[[Lab, random.Random, str], list[TimedAction]]] = {
    "nothing": _nothing,
    "hog-one": _hog_one,
    "hog-all": _hog_all,
    **{f"halt-{process}": _halt(process) for process in ("probe", "agent", "detector", "remediator", "nats")},
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


def lost(actions: Sequence[TimedAction]) -> set[str]:
    """The NICs that a disturbance takes away."""
    return {timed.lost for timed in actions if timed.lost}


def reaches(nic: str, lost_nics: set[str], peer: str) -> bool:
    """Whether traffic between a silent NIC's host and a peer has another rail left."""
    return not any(node_of(each) in {node_of(nic), peer} and rail_of(each) != rail_of(nic) for each in lost_nics)
