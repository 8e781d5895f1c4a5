"""The evidence of a run, from which its report is made."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from foliot_lab.faults.injection import Injection
    from foliot_lab.measure.bus_recorder import Heard
    from foliot_lab.measure.clock_truth import LabTime, Truth
    from foliot_lab.measure.host_latency import Machine, Second
    from foliot_lab.measure.outages import Verdict
    from foliot_lab.scenario.topology import FabricPlan
    from foliot_lab.workload.flow_loop import FlowPlan
    from foliot_lab.workload.flow_record import FlowRecord
    from foliot_lab.workload.jobs import JobsRecord
    from foliot_lab.workload.train.record import JobRecord
    from foliot_schemas import Command, Event, Outcome, WorkerBatch


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """All that a report is made from."""

    fabric: FabricPlan
    injections: Sequence[Injection]
    seen: Mapping[str, Verdict]
    """The witness's verdict on each fault, see `witnessed`."""
    events: Sequence[Heard[Event]]
    commands: Sequence[Heard[Command]]
    outcomes: Sequence[Heard[Outcome]] = ()
    workers: Sequence[Heard[WorkerBatch]] = ()
    """What nodes told of the processes of a job whose ranks can be replaced."""
    flows: tuple[FlowPlan, ...]
    record: FlowRecord | None
    """The record of `flows`, in their order; None without any."""
    job: JobRecord | None = None
    """The record of the training job; None without one."""
    jobs: JobsRecord | None = None
    """None: the scenario has one workload and no jobs."""
    truth: Truth
    lab: LabTime
    machine: Machine
    seconds: Sequence[Second] = ()
    """The machine's spare processor time, second by second of lab time."""
    start_ns: int = 0
    """Second 0 of the scenario."""
    end_ns: int
    """End of the run."""
    paths: Mapping[str, tuple[str, ...]] = {}
    """The links of each path by its name, as the kernels send it."""
    armed: str = "off"
    """Whether agents act on their own lost carrier: `off`, `bus-away` or `always`."""
