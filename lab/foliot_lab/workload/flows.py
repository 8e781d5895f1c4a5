"""The TCP flows of a workload or of jobs: the plan, and the process that carries them."""

from __future__ import annotations

import mmap
import os
import struct
import subprocess
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Self

import msgspec

from foliot_lab.services.job_placement import FLOWS_PORT, job_flows
from foliot_lab.workload.flow_loop import TURN_NS, FlowPlan, Loop, LoopPlan
from foliot_lab.workload.flow_record import SLOT_NS, FlowRecord
from foliot_lab.workload.job_steps import JobPlan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from foliot_lab.fabric.namespaces import Namespace
    from foliot_lab.measure.clock_truth import LabTime
    from foliot_lab.scenario.spec import JobSpec, Scenario
    from foliot_lab.scenario.topology import FabricPlan
    from foliot_lab.services.job_placement import JobFlow, Placement
    from foliot_schemas import Node

_KEEP_S = 3600.0
_LENGTH = struct.Struct("=I")
_STOP_S = 5.0


def plan(kind: str, nodes: Sequence[Node], *, link_mbps: float, load: float) -> tuple[FlowPlan, ...]:
    """The flows of a workload on every rail.

    ``ring``: each node to the next. ``all-to-all``: each to all others. ``none``: no flow. A node sends `load` times
    `link_mbps` on each of its NICs, split evenly among that NIC's flows.

    Raises:
        ValueError: this kind is not made of plain flows.
    """
    if kind not in {"ring", "all-to-all", "none"}:
        raise ValueError(f"workload.kind: {kind!r} is not made of plain flows; there are ring, all-to-all and none")
    steps = {"ring": range(1, 2), "all-to-all": range(1, len(nodes)), "none": range(0)}[kind]
    if len(nodes) < 2 or not steps:
        return ()
    bytes_per_s = round(load * link_mbps * 1e6 / 8 / len(steps))
    return tuple(
        FlowPlan(
            id=f"{node.name}>{peer.name}/{nic.rail}",
            source=node.name,
            destination=peer.name,
            rail=nic.rail,
            source_address=nic.service_address,
            destination_address=peer.nic(nic.rail).service_address,
            bytes_per_s=bytes_per_s,
        )
        for number, node in enumerate(nodes)
        for step in steps
        for peer in (nodes[(number + step) % len(nodes)],)
        for nic in node.nics
    )


def plan_jobs(
    scenario: Scenario, fabric: FabricPlan, nodes: Sequence[Node], placement: Placement
) -> tuple[FlowPlan, ...]:
    """The flows of all jobs, job by job. A flow's id has its job's name in it where two jobs have flows of that id."""
    flows = list(job_flows(scenario))
    known = {node.name: node for node in nodes}
    alike = Counter(flow[1:] for flow in flows)

    def planned(flow: JobFlow) -> FlowPlan:
        job = scenario.jobs[flow.job]
        to_nic = job.over == "nic"
        name = f"{flow.source}>{flow.destination}/{flow.rail}"
        addresses = [
            fabric.underlay(host, flow.rail) if to_nic else known[host].nic(flow.rail).service_address
            for host in (flow.source, flow.destination)
        ]
        return FlowPlan(
            id=name if alike[flow[1:]] == 1 else f"{job.name}:{name}",
            source=flow.source,
            destination=flow.destination,
            rail=flow.rail,
            source_address=addresses[0],
            destination_address=addresses[1],
            bytes_per_s=_bytes_per_s(job.mbps),
            job=flow.job,
            over=job.over,
            source_port=placement.port(flow) if to_nic else 0,
        )

    return tuple(planned(flow) for flow in flows)


def how_it_sends(job: JobSpec) -> JobPlan:
    """What the flows' process has to know of a job."""
    return JobPlan(step_bytes=round((job.step_mb or 0) * 1e6), read_bytes_per_s=_bytes_per_s(job.read_mbps))


def _bytes_per_s(mbps: float | None) -> int:
    return round((mbps or 0) * 1e6 / 8)


class Flows:
    """A running workload. Make it by `start`. `record` fills while it runs and stays readable after `stop`."""

    def __init__(self, plans: tuple[FlowPlan, ...], process: subprocess.Popen[bytes], record: FlowRecord) -> None:
        self.plans = plans
        self.record = record
        self._process = process

    @classmethod
    def start(
        cls,
        plans: tuple[FlowPlan, ...],
        namespaces: Mapping[str, Namespace],
        lab: LabTime,
        *,
        jobs: tuple[JobPlan, ...] = (),
        keep_s: float = _KEEP_S,
        port: int = FLOWS_PORT,
    ) -> Self:
        """Starts the process. The flows open as soon as the fabric permits.

        Parameters:
            namespaces: the namespace of each node.
            jobs: each runs while the record wants it; empty: the flows are of no job, and send all the time.
            keep_s: the length of the record; only the used part takes memory.
        """
        slots = int(keep_s * 1e9) // SLOT_NS
        memory = os.memfd_create("foliot-flows")
        try:
            os.truncate(memory, FlowRecord.size(len(plans), slots, len(jobs)))
            record = FlowRecord(mmap.mmap(memory, 0), len(plans), slots, len(jobs))
            record.begin(lab.now_ns())
            nodes = {flow.source for flow in plans} | {flow.destination for flow in plans}
            fds = {node: namespaces[node].fd for node in nodes}
            spec = msgspec.msgpack.encode(
                LoopPlan(
                    flows=plans,
                    namespaces=fds,
                    record=memory,
                    slots=slots,
                    base_ns=lab.base_ns,
                    port=port,
                    jobs=jobs,
                )
            )
            process = subprocess.Popen(
                [sys.executable, "-m", "foliot_lab.workload.flows"],
                stdin=subprocess.PIPE,
                pass_fds=[memory, *fds.values()],
            )
        finally:
            os.close(memory)
        assert process.stdin is not None
        process.stdin.write(_LENGTH.pack(len(spec)) + spec)
        process.stdin.flush()
        return cls(plans, process, record)

    @property
    def open(self) -> bool:
        """Whether every flow has carried its first byte."""
        return bool(self.record.opened_ns.all())

    @property
    def pid(self) -> int:
        """The id of the process; 0: it has ended."""
        return self._process.pid if self._process.poll() is None else 0

    def stop(self) -> None:
        """Ends the process. May be called twice."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def main() -> None:
    """Reads the plan from stdin and runs the flows until stdin ends.

    So the process ends with the lab, however that ends.
    """
    with open(0, "rb", buffering=0, closefd=False) as stdin:
        (length,) = _LENGTH.unpack(_read_exactly(stdin.fileno(), _LENGTH.size))
        spec = msgspec.msgpack.decode(_read_exactly(stdin.fileno(), length), type=LoopPlan)
        os.set_blocking(stdin.fileno(), False)
        record = FlowRecord(mmap.mmap(spec.record, 0), len(spec.flows), spec.slots, len(spec.jobs))
        loop = Loop(spec, record)
        due_ns = time.monotonic_ns()
        while _lasts(stdin.fileno()):
            loop.turn()
            # A late turn is not made up for: the kernel has queued the bytes that arrived meanwhile.
            due_ns = max(due_ns + TURN_NS, time.monotonic_ns())
            time.sleep(max(due_ns - time.monotonic_ns(), 0) * 1e-9)
        loop.close()


def _read_exactly(fd: int, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = os.read(fd, count - len(data))
        if not more:
            raise SystemExit("the lab ended before it said what to do")
        data += more
    return data


def _lasts(fd: int) -> bool:
    """Whether the lab still holds the other end of this pipe."""
    try:
        return os.read(fd, 1) != b""
    except BlockingIOError:
        return True


if __name__ == "__main__":
    main()
