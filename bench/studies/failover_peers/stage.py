"""The stage on which peers are measured, the faults on it, and the protocol of a peer."""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from bench.studies.clock_peers.children import ChildError
from bench.studies.failover_peers.rows import Row
from foliot_lab.fabric.fabric import FabricError
from foliot_lab.faults.actions import Action, prepare
from foliot_lab.scenario.spec import FaultSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from bench.studies.failover_peers.rows import Coverage
    from foliot_lab.fabric.fabric import Fabric
    from foliot_lab.faults.world import World
    from foliot_lab.measure.clock_truth import LabTime
    from foliot_lab.scenario.spec import FabricSpec, FaultKind
    from foliot_lab.scenario.topology import FabricPlan

LOOK_S = 0.01


class PeerError(RuntimeError):
    """A peer cannot run, or did not start; the message says which, and why."""


FAILURES = (PeerError, ChildError, FabricError, OSError)
"""The errors after which the bench goes on with the next peer."""


class Stage(NamedTuple):
    """A fabric that is up."""

    fabric: Fabric
    spec: FabricSpec
    time: LabTime
    folder: Path
    """The folder for the files of peers."""
    unpacked: Path
    """The folder with Debian's unpacked packages, if there is one."""


class Cut(NamedTuple):
    """A fault to be done."""

    variant: str
    kind: FaultKind
    where: str
    action: Action

    def at_a_nic(self) -> bool:
        """Whether it is a NIC's and not a fabric link's."""
        return self.where.startswith("node")


VARIANTS: dict[str, tuple[FaultKind, bool]] = {
    "lost carrier": ("link-down", True),
    "silent NIC": ("drop", True),
    "silent NIC one way": ("drop-one-way", True),
    "silent uplink": ("drop", False),
}
"""The kind of each fault, and whether its target is a NIC."""


def place(variant: str, plan: FabricPlan, rep: int) -> str:
    """The place of a variant: another NIC, or fabric link, in each repetition."""
    _, at_a_nic = VARIANTS[variant]
    places = (
        [f"{host}.{rail}" for host in plan.hosts for rail in plan.rails] if at_a_nic else [t.name for t in plan.trunks]
    )
    # Shuffled, so that consecutive targets do not share a host or leaf. All have their turn.
    return random.Random(variant).sample(places, len(places))[rep % len(places)]


def cut(variant: str, stage: Stage, rep: int, world: World | None = None) -> Cut:
    """A variant, prepared. `world` may be left out: wires need none.

    Raises:
        KeyError: there is no such variant.
    """
    kind, _ = VARIANTS[variant]
    where = place(variant, stage.fabric.plan, rep)
    fault = FaultSpec(at_s=0.0, kind=kind, where=where)
    return Cut(variant, kind, where, prepare(fault, stage.spec, stage.fabric, cast("World", world)))


class Peer(Protocol):
    """A tool beside Foliot that finds faults, or survives them."""

    name: str

    async def start(self) -> None:
        """Sets it up in the fabric and waits until it is in step.

        Raises:
            PeerError, ChildError, FabricError, OSError: that failed; what was set up may remain until `stop`.
        """

    async def measure(self, cut: Cut, rep: int) -> Row:
        """Does a fault, waits, heals it, waits until the peer is in step again.

        Raises:
            PeerError, ChildError, FabricError, OSError: the peer broke down.
        """

    async def stop(self) -> None:
        """Removes all that `start` made. May be called at any time, and twice."""

    def coverage(self) -> Coverage | None:
        """The coverage of its sessions; None: it has none, or has not been started."""


async def in_turn(
    peers: Sequence[Peer], stage: Stage, variants: Sequence[str], rep: int, tell: Callable[[Row], None]
) -> None:
    """Runs one repetition: each peer is started, put through the variants, and stopped.

    A peer that cannot run says so.
    """
    for peer in peers:
        done: list[str] = []
        try:
            await peer.start()
            for variant in variants:
                tell(await peer.measure(cut(variant, stage, rep), rep))
                done.append(variant)
        except FAILURES as error:
            for variant in variants[len(done) :]:
                where = place(variant, stage.fabric.plan, rep)
                tell(Row(variant=variant, where=where, tool=peer.name, rep=rep, said=" ".join(str(error).split())))
        finally:
            await peer.stop()


async def until(holds: Callable[[], bool], patience_s: float) -> bool:
    """Waits for something to become true; whether it did."""
    deadline_s = time.monotonic() + patience_s
    while not holds():
        if time.monotonic() > deadline_s:
            return False
        await asyncio.sleep(LOOK_S)
    return True
