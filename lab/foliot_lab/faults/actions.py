"""The actions that inject and heal each kind of fault.

An action is prepared beforehand, so that doing it takes a system call or two. A link's state changes within some 0.1
ms.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from foliot_lab.fabric.link_shaping import Shape, drop, drop_large, pass_again, reshape
from foliot_lab.fabric.namespaces import child_setup
from foliot_lab.fabric.rtnetlink import delete_link, link_state, put_route
from foliot_lab.scenario.fault_target import parse_where

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from foliot_lab.fabric.fabric import Fabric
    from foliot_lab.faults.world import World
    from foliot_lab.scenario.spec import FabricSpec, FaultSpec
    from foliot_lab.scenario.topology import Link, Port


class Action(NamedTuple):
    """A fault as two calls. Healing a half-injected fault, or healing twice, may raise but does no harm."""

    inject: Callable[[], None]
    heal: Callable[[], None]
    before_heal: Callable[[], None] | None = None
    """For a fault that ends in two steps, the first one, at the end of its `for_s`. If it was not done, `heal` does
    it."""


def prepare(fault: FaultSpec, spec: FabricSpec, fabric: Fabric, world: World) -> Action:
    """The action of a fault that a scenario accepted.

    A kill and a clock step without `for_s` are not undone: at the end of the run no process is left to notice.

    Raises:
        ValueError: the fabric has no such target.
    """
    target = parse_where(fault.where, spec)
    if target.kind in {"nic", "fabric link"}:
        return _link_action(fault, fabric, fabric.plan.links[fault.where])
    if target.kind == "rank":
        return _rank_action(fault, world)
    world_action = _world_action(fault, target.node, world)
    if world_action is None:
        raise ValueError(f"{fault.kind} cannot be done to {fault.where}")
    return world_action


def _world_action(fault: FaultSpec, node: str, world: World) -> Action | None:
    where, lasting = fault.where, fault.for_s is None
    if fault.kind == "cpu":
        hog = Hog(fault.share or 1.0)
        return Action(hog.start, hog.stop)
    offset_ns = fault.offset_ns or 0
    step, back = partial(world.step_clock, node, offset_ns), partial(world.step_clock, node, -offset_ns)
    return {
        "kill": Action(partial(world.kill, where), _nothing if lasting else partial(world.restart, where)),
        "stop": Action(partial(world.stop, where), partial(world.resume, where)),
        "restart": Action(partial(world.terminate, where), _nothing),
        "partition": Action(partial(world.part, where), partial(world.join, where)),
        "clock-step": Action(step, _nothing if lasting else back),
        "bus-cut": Action(world.cut_bus, world.mend_bus),
        "cut-off": Action(partial(world.cut_off, node), partial(world.plug_in, node)),
        "drain": Action(partial(world.drain, node), partial(world.use_again, node)),
        "xid": Action(partial(world.xid, node, fault.number or 0), _nothing),
    }.get(fault.kind)


def _rank_action(fault: FaultSpec, world: World) -> Action:
    where = fault.where
    match fault.kind:
        case "kill":
            return Action(
                partial(world.signal_rank, where, signal.SIGKILL),
                _nothing if fault.for_s is None else partial(world.start_rank, where),
            )
        case "stop":
            return Action(
                partial(world.signal_rank, where, signal.SIGSTOP),
                partial(world.signal_rank, where, signal.SIGCONT)
                if fault.for_s is None
                else partial(world.resume_rank, where),
            )
        case "throttle":
            throttle = Throttle(lambda: world.rank_pid(where), fault.share or 0.5)
            return Action(throttle.start, throttle.stop)
        case "reset":
            return Action(partial(world.reset_connections, where), _nothing)
        case "data-slow" | "compute-slow":
            words = f"{fault.kind} {fault.ms or 0.0:g}"
        case _:
            words = fault.kind
    return Action(partial(world.pull, where, words), partial(world.pull, where, ""))


def _link_action(fault: FaultSpec, fabric: Fabric, link: Link) -> Action:
    match fault.kind:
        case "link-down" | "flap":
            # At the far end, so that the near one loses its carrier as with a pulled cable.
            return _state_action(fabric, link.far)
        case "admin-down":
            return _state_action(fabric, link.near)
        case "drop" | "loss" | "drop-one-way" | "loss-one-way" | "mtu":
            return _filter_action(fault, fabric, link.far)
        case "reload":
            absence = Absence(fabric, link)
            return Action(absence.begin, absence.end, absence.return_device)
        case "rate":
            return _rate_action(fabric, link, fault.mbps or fabric.plan.link_mbps)
        case _:
            raise ValueError(f"{fault.kind} cannot be done to {fault.where}")


def _state_action(fabric: Fabric, port: Port) -> Action:
    def down() -> None:
        _tell(fabric, port, [link_state(fabric.index(port), up=False)])

    def up() -> None:
        index = fabric.index(port)
        routes = [put_route(route.prefix, gateway, index) for route in port.routes for gateway, _ in route.gateways]
        _tell(fabric, port, [link_state(index, up=True), *routes])

    return Action(down, up)


def _filter_action(fault: FaultSpec, fabric: Fabric, port: Port) -> Action:
    # At the receiver, never on the sending host itself: its own kernel would tell the sender of the loss.
    hooks = (True,) if fault.kind.endswith("-one-way") else (True, False)
    index = fabric.index(port)
    if fault.bytes is not None:
        on = [drop_large(index, entering=entering, most_bytes=fault.bytes) for entering in hooks]
    else:
        on = [drop(index, entering=entering, share=fault.share or 1.0) for entering in hooks]
    off = [pass_again(index, entering=entering) for entering in hooks]
    return Action(partial(_tell, fabric, port, on), partial(_tell, fabric, port, off))


def _rate_action(fabric: Fabric, link: Link, rate_mbps: float) -> Action:
    def reshape_both(rate_mbps: float) -> None:
        shape = Shape(rate_mbps=rate_mbps, queue_packets=fabric.plan.queue_packets)
        for port in (link.near, link.far):
            _tell(fabric, port, [reshape(fabric.index(port), shape)])

    return Action(partial(reshape_both, rate_mbps), partial(reshape_both, fabric.plan.link_mbps))


def _tell(fabric: Fabric, port: Port, messages: Iterable[bytes]) -> None:
    """Send all messages, even if one is refused, and raise the first refusal."""
    refusals = []
    for message in messages:
        try:
            fabric.netlink(port).request(message)
        except OSError as error:
            refusals.append(error)
    if refusals:
        raise refusals[0]


def _nothing() -> None:
    """Does nothing: there is nothing to undo."""


class Absence:
    """Takes the device of a NIC away and back, as when a driver is reloaded or a card is plugged in again."""

    def __init__(self, fabric: Fabric, link: Link) -> None:
        self._fabric = fabric
        self._link = link
        self._away = False

    def begin(self) -> None:
        """Delete the device, with its addresses, its routes, its queues and the host's additions on top of it."""
        near = self._link.near
        self._fabric.netlink(near).request(delete_link(self._fabric.index(near)))
        self._away = True

    def return_device(self) -> None:
        """Make a new device of the same name, configured, without a carrier."""
        if self._away:
            self._fabric.make_anew(self._link)
            self._away = False

    def end(self) -> None:
        """Give the device its carrier."""
        self.return_device()
        far = self._link.far
        self._fabric.netlink(far).request(link_state(self._fabric.index(far), up=True))


class Hog:
    """Processes that use up a share of each processor of the machine, or of some of them.

    All hosts share the processors, so every host is affected.

    Parameters:
        processors: the number of processors; None: all.
    """

    _PROGRAM = """
import sys, time
share, period_s = float(sys.argv[1]), 0.01
while True:
    start = time.perf_counter()
    while time.perf_counter() - start < share * period_s:
        pass
    if share < 1:
        time.sleep((1 - share) * period_s)
"""
    # The period is short beside the times of detectors, which decide within 100 ms and more.

    def __init__(self, share: float, processors: int | None = None) -> None:
        self._share = share
        self._number = processors
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def pids(self) -> list[int]:
        """The processes that run now."""
        return [process.pid for process in self._processes]

    def start(self) -> None:
        """Start one process on each processor."""
        for processor in sorted(os.sched_getaffinity(0))[: self._number]:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", self._PROGRAM, str(self._share)],
                preexec_fn=child_setup(),  # noqa: PLW1509 - it makes two system calls, prepared before the fork
            )
            self._processes.append(process)
            os.sched_setaffinity(process.pid, {processor})

    def stop(self) -> None:
        """End all processes."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
        self._processes.clear()


class Throttle:
    """Halts a process for a share of each 20 ms.

    Parameters:
        pid: asked when it begins; 0: there is no such process.
    """

    _PROGRAM = """
import os, signal, sys, time
pid, share, period_s = int(sys.argv[1]), float(sys.argv[2]), 0.02
try:
    while True:
        os.kill(pid, signal.SIGSTOP)
        time.sleep(share * period_s)
        os.kill(pid, signal.SIGCONT)
        time.sleep((1 - share) * period_s)
except ProcessLookupError:
    pass
"""

    def __init__(self, pid: Callable[[], int], share: float) -> None:
        self._pid = pid
        self._share = share
        self._halted = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Begins."""
        if not (pid := self._pid()):
            return
        self._halted = pid
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", self._PROGRAM, str(pid), str(self._share)],
            preexec_fn=child_setup(),  # noqa: PLW1509 - as above
        )

    def stop(self) -> None:
        """Ends, and lets the process go on."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        self._process = None
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._halted, signal.SIGCONT)
