"""A scenario's structs: fabric, clocks, services' settings, workload or jobs, timeline of faults, and expectations.

Times are seconds since the workload started. A fault or job without `for_s` lasts until the end of the run. A clock
step with `for_s` is stepped back after it.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

WorkloadKind = Literal["ring", "all-to-all", "train", "none"]
JobKind = Literal["ring", "all-to-all", "pairs", "incast", "train"]
Placed = Literal["hash", "apart", "collide"]
Over = Literal["service", "nic"]
"""The addresses that a job uses: the service addresses or the NICs' own."""
FaultKind = Literal[
    "link-down", "admin-down", "flap", "drop", "drop-one-way", "loss", "loss-one-way", "rate", "cpu", "kill", "stop",
    "restart",
    "clock-step", "bus-cut", "partition", "reload", "mtu",
    "throttle", "compute-slow", "data-slow", "hang", "mismatch", "reset",
    "cut-off", "xid", "drain",
]  # fmt: skip
TrainUse = Literal["plain", "foliot"]
Setting = bool | int | float | str | list[bool | int | float | str]

CARRIER_S = 1.0
"""The time from a driver's making of a device until the device has its carrier. Links of 100 Gb/s and more take one
to several seconds to come up."""
RECOVERY_S = 20.0
"""The time after the last fault. With the lab's settings, probation and the decay of the damping penalty are over by
then."""
TRAIN = "train"
"""The name of the training job that is the workload."""
GLOO_TIMEOUT_S = 1800.0
"""Gloo's own default: an operation may hang for half an hour."""

_Limit = Annotated[float, msgspec.Meta(gt=0)]
_Seconds = Annotated[float, msgspec.Meta(gt=0, le=1e6)]
_Share = Annotated[float, msgspec.Meta(gt=0, le=1)]
_Moment = Annotated[float, msgspec.Meta(ge=0, le=1e6)]


class FabricSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The size and rates of the fabric.

    Each rail is a leaf-spine fabric of its own; a host has one NIC on every rail.
    """

    hosts: Annotated[int, msgspec.Meta(ge=2, le=254)] = 8
    """At most as many as the frontend has addresses."""
    rails: Annotated[int, msgspec.Meta(ge=1, le=8)] = 2
    """At most as many as the service prefix 10.200.0.0/13 has /16s."""
    leaves: Annotated[int, msgspec.Meta(ge=1, le=64)] = 2
    """Per rail; the hosts are split among them in contiguous blocks."""
    spines: Annotated[int, msgspec.Meta(ge=1, le=64)] = 4
    """Per rail, each joined to every leaf."""
    link_mbps: Annotated[float, msgspec.Meta(ge=1, le=10_000)] = 200.0
    """At 1, a single full-size packet takes 12 ms; above 10,000 no machine carries what the lab would measure."""
    queue_packets: Annotated[int, msgspec.Meta(ge=64, le=100_000)] = 200
    """At least a GSO packet of 64 KiB must fit."""
    bus_servers: Literal[1, 3] = 1
    """NATS servers: one, or a cluster that keeps three copies of everything and bears the loss of one member."""
    icmp: bool = True
    """Whether routers answer a packet whose time to live is over."""
    spray: bool = False
    """Whether leaves give packets to their spines in turn, and not by their hash."""
    entropies: Annotated[int, msgspec.Meta(ge=1, le=64)] = 4
    """UDP source ports of the overlay."""


class ClockSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Each host's skew is drawn from the seed, uniform within plus and minus these."""

    seed: Annotated[int, msgspec.Meta(ge=0)] = 7
    offset_ms: Annotated[float, msgspec.Meta(ge=0, le=1e6)] = 50.0
    drift_ppb: Annotated[float, msgspec.Meta(ge=0, le=1e6)] = 30_000.0
    wander_ppb: Annotated[float, msgspec.Meta(ge=0, le=1e5)] = 20.0
    """Random walk of the drift, per square root of a second."""
    nic_clocks: bool = False
    """Whether each NIC stamps by a clock of its own, which is drawn likewise and runs beside its host's. The services
    use it with ``probe.nic_stamps = "auto"``."""


RanksPerHost = Annotated[int, msgspec.Meta(ge=1, le=64)]
Spares = Annotated[int, msgspec.Meta(ge=0, le=252)]
"""The largest fabric without two hosts that have ranks."""
CheckpointSteps = Annotated[int, msgspec.Meta(ge=1, le=10_000_000)]


class WorkloadSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The traffic that the fabric carries all the time."""

    kind: WorkloadKind = "ring"
    load: _Share = 0.6
    """The share of link_mbps that the flows send. A training job takes the rate that it gets, and has none."""


class TrainSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A training job: one rank or more on each host, on all of its rails; its last hosts may stand by."""

    gradient_mb: Annotated[float, msgspec.Meta(ge=1, le=1000)] = 8.0
    """Gradients reduced among all ranks in every step. With four hosts, each rank sends one and a half times as
    much. That takes a quarter of a second on two links of 200 Mb/s, beside some 30 ms of computing."""
    batch: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 8
    """Sentences of 32 tokens, for each rank and step."""
    steps: Annotated[int, msgspec.Meta(ge=1, le=10_000_000)] | None = None
    """Steps to do; None: until the run ends."""
    seed: Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)] = 7
    """Seed of weights and data."""
    timeout_s: Annotated[float, msgspec.Meta(gt=0, le=1e6)] = GLOO_TIMEOUT_S
    """Timeout of every operation of Gloo's."""
    use: TrainUse = "plain"
    """Whether the job tells Foliot of its collectives (`foliot.torch`), or knows nothing of Foliot. With `spares`, what
    tells Foliot also has its lost ranks replaced."""
    ranks_per_host: RanksPerHost = 1
    spares: Spares = 0
    """The job's last hosts, so many, have no rank. They stand by."""
    checkpoint_steps: CheckpointSteps | None = None
    """A plain job saves its state each so many steps. torchrun starts it again from there when a rank is lost."""

    @property
    def is_replaceable(self) -> bool:
        """Whether spares take the places of lost ranks."""
        return self.use == "foliot" and self.spares > 0

    @property
    def is_restarted(self) -> bool:
        """Whether torchrun starts the job again when it has lost a rank."""
        return self.checkpoint_steps is not None

    @property
    def outlives_ranks(self) -> bool:
        """Whether the job goes on after the loss of a rank, in either way."""
        return self.is_replaceable or self.is_restarted

    def ranks(self, hosts: int) -> int:
        """The number of its ranks on so many hosts, spares included."""
        return self.ranks_per_host * (hosts - self.spares)


_Rate = Annotated[float, msgspec.Meta(ge=0.01, le=10_000)]


class JobSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One job of several: TCP flows between its hosts, or a training job."""

    name: Annotated[str, msgspec.Meta(pattern=r"^[\w-]+$")]
    kind: JobKind
    hosts: tuple[str, ...] | None = None
    """In the order in which the kind takes them; None: all."""
    rails: tuple[str, ...] | None = None
    """None: all."""
    step_mb: Annotated[float, msgspec.Meta(ge=0.01, le=10_000)] | None = None
    """Each step sends that much over every flow. The next one begins when the slowest flow has delivered."""
    mbps: _Rate | None = None
    """Each flow sends at this rate, without steps."""
    read_mbps: _Rate | None = None
    """The receiving application reads each flow no faster."""
    priority: Annotated[int, msgspec.Meta(ge=-100, le=100)] = 0
    """Jobs with a higher one matter more."""
    at_s: _Moment = 0.0
    for_s: _Seconds | None = None
    placed: Placed = "hash"
    """The ways of its flows over fabric links: as the fabric's hash has it, free of collisions, or all on one link."""
    over: Over = "service"
    gradient_mb: Annotated[float, msgspec.Meta(ge=1, le=1000)] | None = None
    """This key and those that follow are of a training job, as in `TrainSpec`."""
    batch: Annotated[int, msgspec.Meta(ge=1, le=1024)] | None = None
    steps: Annotated[int, msgspec.Meta(ge=1, le=10_000_000)] | None = None
    seed: Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)] | None = None
    timeout_s: Annotated[float, msgspec.Meta(gt=0, le=1e6)] | None = None
    use: TrainUse | None = None
    ranks_per_host: RanksPerHost | None = None
    spares: Spares | None = None
    checkpoint_steps: CheckpointSteps | None = None

    def train(self) -> TrainSpec:
        """The training job that it is, with the defaults of what it leaves out."""
        given = {name: getattr(self, name) for name in TrainSpec.__struct_fields__}
        return TrainSpec(**{name: value for name, value in given.items() if value is not None})


class FaultExpectation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table `[fault.expect]` for one fault's outcome, which counts in full: nothing is subtracted.

    `inf`: not judged.
    """

    found_ms: _Limit | None = None
    """From the injection until an event about it was decided."""
    moved_ms: _Limit | None = None
    """From the injection until both directions of every affected pair flow."""
    gap_ms: _Limit | None = None
    """The longest time in which a flow that it may touch received nothing."""
    back_s: _Limit | None = None
    """From the healing until the last pair is on its way of before."""
    stall_ms: _Limit | None = None
    """The longest time without a step of a job that loses a rank by it, beyond a step's usual length."""


class Expectation(FaultExpectation, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The run's table `[expect]`, for every fault without an expectation of its own, and for the run as a whole."""

    unexplained: Annotated[int, msgspec.Meta(ge=0)] = 0
    """The most events and commands, together, that no fault explains."""


class FaultSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One fault of the timeline."""

    id: Annotated[str, msgspec.Meta(min_length=1)] = ""
    """f1, f2, ... in the file's order unless given."""
    at_s: _Moment
    kind: FaultKind
    where: str
    for_s: _Seconds | None = None
    times: Annotated[int, msgspec.Meta(ge=1, le=10_000)] | None = None
    """Flap: how often the link goes down."""
    down_s: _Seconds | None = None
    up_s: _Seconds | None = None
    share: _Share | None = None
    """Loss: share of the packets. Cpu: share of each processor that the hog takes. Throttle: share of the time for which
    the rank is halted."""
    ms: Annotated[float, msgspec.Meta(gt=0, le=60_000)] | None = None
    """Data-slow: for how much longer the rank waits for the data of each step. Compute-slow: for how much longer it
    computes."""
    mbps: Annotated[float, msgspec.Meta(ge=0.1, le=10_000)] | None = None
    """Rate: the part of link_mbps that is left, in both directions."""
    bytes: Annotated[int, msgspec.Meta(ge=576)] | None = None
    """Mtu: the largest IP packet that passes, on the wire. It is at least the size that every host must accept (RFC
    791), so small probes and segments still pass."""
    number: Annotated[int, msgspec.Meta(ge=0, lt=1 << 16)] | None = None
    """Xid: the kind of the error, by NVIDIA's number."""
    offset_ns: Annotated[int, msgspec.Meta(ge=-(10**15), le=10**15)] | None = None
    """Clock step: how far forward; back if negative."""
    expect: FaultExpectation | None = None
    """None: the promise holds, see `promises.py`."""

    @property
    def lasts_s(self) -> float | None:
        """The length of a fault; None: until the end of the run.

        A device that was away is of use again when it has its carrier.
        """
        if self.times is not None and self.down_s is not None and self.up_s is not None:
            return self.times * self.down_s + (self.times - 1) * self.up_s
        if self.kind == "reload" and self.for_s is not None:
            return self.for_s + CARRIER_S
        return self.for_s


class RunSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The length of a run, and of what comes before it."""

    duration_s: _Seconds | None = None
    solo_s: Annotated[float, msgspec.Meta(ge=1, le=1e6)] | None = None
    """Each job runs alone first for that long, before second 0."""
    skip_waits: bool = False
    """Whether time in which nothing is due is left out, see `faults/waits.py`."""


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """A scenario as a whole."""

    fabric: FabricSpec = FabricSpec()
    clock: ClockSpec = ClockSpec()
    services: dict[str, Setting] = {}
    """Settings of services by dotted name, as in the configuration file: `remediator.armed`."""
    workload: WorkloadSpec = WorkloadSpec()
    train: TrainSpec = TrainSpec()
    """The training job, for a workload of that kind."""
    jobs: tuple[JobSpec, ...] = ()
    """In place of a workload, which then is `none`."""
    solo_s: float | None = None
    """The time for which each job runs alone first; None: it does not."""
    skip_waits: bool = False
    """Whether time in which nothing is due is left out."""
    expect: Expectation = Expectation()
    faults: tuple[FaultSpec, ...] = ()
    duration_s: float = RECOVERY_S
    """The length of the run. Default: from the start to the end of the last fault or job, and `RECOVERY_S` more."""


def trains(scenario: Scenario) -> bool:
    """Whether a training job runs in it."""
    return scenario.workload.kind == "train" or any(job.kind == "train" for job in scenario.jobs)


def trained(scenario: Scenario) -> tuple[str, TrainSpec] | None:
    """The training job that runs in it, with its name; None: none does."""
    if scenario.workload.kind == "train":
        return TRAIN, scenario.train
    return next(((job.name, job.train()) for job in scenario.jobs if job.kind == "train"), None)


def armed(scenario: Scenario) -> str:
    """The agents' reaction to their own lost carrier: `off`, `bus-away` or `always`.

    Both names of the setting are the agents'.
    """
    return str(scenario.services.get("remediator.armed", scenario.services.get("agent.armed", "off")))
