"""A scenario: the fabric, the clocks, the services' settings, the workload and the timeline of faults, from a TOML file.

Whatever is wrong with a file is found in one go, each with its line. Times are seconds since the workload started.
A fault without `for_s` lasts until the end of the run. A clock step with `for_s` is stepped back after it.
"""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_args, get_type_hints

import msgspec

from foliot_lab.plan import HOSTS_PER_LEAF, leaf_sizes
from foliot_lab.promises import Expectation, FaultExpectation
from foliot_lab.timeline import problems_of
from foliot_lab.tomllines import Place, line_of, lines_of
from foliot_lab.train.spec import TrainSpec

if TYPE_CHECKING:
    from pathlib import Path

WorkloadKind = Literal["ring", "all-to-all", "train", "none"]
FaultKind = Literal[
    "link-down", "admin-down", "flap", "drop", "drop-one-way", "loss", "loss-one-way", "rate", "cpu", "kill", "stop", "restart",
    "clock-step", "bus-cut", "partition", "reload", "mtu",
]  # fmt: skip
Setting = bool | int | float | str | list[bool | int | float | str]

CARRIER_S = 1.0
"""A device that a driver has made anew has its carrier so much later: links of 100 Gb/s and more take one to several seconds to come up."""
RECOVERY_S = 20.0
"""After the last fault: probation and the decay of the damping penalty are over by then with the lab's settings."""

_Count = Annotated[int, msgspec.Meta(ge=1)]
_Seconds = Annotated[float, msgspec.Meta(gt=0, le=1e6)]
_Share = Annotated[float, msgspec.Meta(gt=0, le=1)]
_Moment = Annotated[float, msgspec.Meta(ge=0, le=1e6)]


class FabricSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Each rail is a leaf-spine fabric of its own; a host has one NIC on every rail."""

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


class ClockSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Each host's skew is drawn from the seed, uniform within plus and minus these."""

    seed: Annotated[int, msgspec.Meta(ge=0)] = 7
    offset_ms: Annotated[float, msgspec.Meta(ge=0, le=1e6)] = 50.0
    drift_ppb: Annotated[float, msgspec.Meta(ge=0, le=1e6)] = 30_000.0
    wander_ppb: Annotated[float, msgspec.Meta(ge=0, le=1e5)] = 20.0
    """Random walk of the drift, per square root of a second."""


class WorkloadSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The traffic that the fabric carries all the time."""

    kind: WorkloadKind = "ring"
    load: _Share = 0.6
    """Of link_mbps; a training job takes what it gets, and has none."""


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
    """Loss: of the packets. Cpu: of each processor that the host's processes may use."""
    mbps: Annotated[float, msgspec.Meta(ge=0.1, le=10_000)] | None = None
    """Rate: what is left of link_mbps, in both directions."""
    bytes: Annotated[int, msgspec.Meta(ge=576)] | None = None
    """Mtu: the largest IP packet that passes, on the wire. At least what every host must accept (RFC 791): small probes and segments go on passing."""
    offset_ns: Annotated[int, msgspec.Meta(ge=-(10**15), le=10**15)] | None = None
    """Clock step: how far forward; back if negative."""
    expect: FaultExpectation | None = None
    """None: what is promised, see `promises.py`."""

    @property
    def lasts_s(self) -> float | None:
        """How long it lasts; None: until the end of the run. A device that was away is of use again when it has its carrier."""
        if self.times is not None and self.down_s is not None and self.up_s is not None:
            return self.times * self.down_s + (self.times - 1) * self.up_s
        if self.kind == "reload" and self.for_s is not None:
            return self.for_s + CARRIER_S
        return self.for_s


class RunSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long to go on."""

    duration_s: _Seconds | None = None


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """All of it."""

    fabric: FabricSpec = FabricSpec()
    clock: ClockSpec = ClockSpec()
    services: dict[str, Setting] = {}
    """By dotted name, as in the configuration file: `remediator.armed`."""
    workload: WorkloadSpec = WorkloadSpec()
    train: TrainSpec = TrainSpec()
    """Of a workload of that kind."""
    expect: Expectation = Expectation()
    faults: tuple[FaultSpec, ...] = ()
    duration_s: float = RECOVERY_S
    """Unless given: from the start to the end of the last fault, and `RECOVERY_S` more."""


def armed(scenario: Scenario) -> str:
    """Whether its agents act on their own lost carrier: `off`, `bus-away` or `always`; both names of the setting are the agents'."""
    return str(scenario.services.get("remediator.armed", scenario.services.get("agent.armed", "off")))


class Problem(msgspec.Struct, frozen=True, order=True):
    """One thing that is wrong with a scenario."""

    line: int
    reason: str


class ScenarioError(ValueError):
    """A scenario that cannot be run, with everything that is wrong with it."""

    def __init__(self, source: str, problems: list[Problem]) -> None:
        super().__init__("\n".join(f"{source}:{problem.line}: {problem.reason}" for problem in problems))
        self.problems = problems


def load_scenario(path: Path) -> Scenario:
    """The scenario in a file.

    Raises:
        ScenarioError: it is wrong, or there is none.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioError(str(path), [Problem(1, f"cannot be read: {error}")]) from error
    return parse_scenario(text, str(path))


def parse_scenario(text: str, source: str = "scenario") -> Scenario:
    """The scenario in a text; the source is what error messages call it.

    Raises:
        ScenarioError: it is wrong.
    """
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        at = re.search(r"at line (\d+)", str(error))
        line = int(at[1]) if at else len(text.splitlines()) or 1
        raise ScenarioError(source, [Problem(line, f"not TOML: {error}")]) from error
    reader = _Reader(lines_of(text))
    scenario = reader.scenario(tables)
    if reader.problems:
        raise ScenarioError(source, sorted(set(reader.problems)))
    return scenario


Spec = TypeVar("Spec", bound=msgspec.Struct)


class _Reader:
    """Reads the tables and notes every problem with its line."""

    def __init__(self, lines: dict[Place, int]) -> None:
        self.problems: list[Problem] = []
        self._lines = lines

    def scenario(self, tables: dict[str, Any]) -> Scenario:
        known = ("fabric", "clock", "services", "workload", "train", "fault", "run", "expect")
        for key in tables.keys() - set(known):
            self._refuse((key,), f"unknown: {key}; expected one of {', '.join(known)}")
        fabric = self._table(tables, FabricSpec, "fabric")
        faults = self._faults(tables)
        if fabric is not None:  # Else what is wrong with the fabric would be blamed on the faults too.
            self._judge(fabric, faults)
        run = self._table(tables, RunSpec, "run") or RunSpec()
        workload = self._table(tables, WorkloadSpec, "workload") or WorkloadSpec()
        self._judge_load(workload, tables)
        present = [fault for fault in faults if fault is not None]
        last_s = max((fault.at_s + (fault.lasts_s or 0.0) for fault in present), default=0.0)
        return Scenario(
            fabric=fabric or FabricSpec(),
            clock=self._table(tables, ClockSpec, "clock") or ClockSpec(),
            services=self._services(tables.get("services", {})),
            workload=workload,
            train=self._table(tables, TrainSpec, "train") or TrainSpec(),
            expect=self._table(tables, Expectation, "expect") or Expectation(),
            faults=tuple(present),
            duration_s=run.duration_s if run.duration_s is not None else last_s + RECOVERY_S,
        )

    def _judge(self, fabric: FabricSpec, faults: list[FaultSpec | None]) -> None:
        for position, field, reason in problems_of(faults, fabric):
            self._refuse(("fault", position, *field.split(".")), reason)
        if fabric.leaves > fabric.hosts:
            self._refuse(("fabric", "leaves"), f"{fabric.leaves} leaves for {fabric.hosts} hosts: some would be empty")
        elif max(leaf_sizes(fabric.hosts, fabric.leaves)) > HOSTS_PER_LEAF:
            what = f"{fabric.hosts} hosts on {fabric.leaves} leaves"
            self._refuse(("fabric", "hosts"), f"{what}: a leaf has addresses for {HOSTS_PER_LEAF}")

    def _judge_load(self, workload: WorkloadSpec, tables: dict[str, Any]) -> None:
        given = tables.get("workload")
        if workload.kind != "train" and "train" in tables:
            self._refuse(
                ("train",), f'the workload is {workload.kind}; a [train] goes with kind = "train" in [workload]'
            )
        elif workload.kind == "train" and isinstance(given, dict) and "load" in given:
            reason = "train has no load: a job takes what the links give while it reduces its gradients; see gradient_mb in [train]"
            self._refuse(("workload", "load"), reason)

    def _faults(self, tables: dict[str, Any]) -> list[FaultSpec | None]:
        given = tables.get("fault", [])
        if not isinstance(given, list):
            self._refuse(("fault",), "faults are written as [[fault]], each its own table")
            return []
        faults = [self._spec(fault, FaultSpec, ("fault", position)) for position, fault in enumerate(given)]
        return [
            msgspec.structs.replace(fault, id=fault.id or f"f{position}") if fault is not None else None
            for position, fault in enumerate(faults, start=1)
        ]

    def _table(self, tables: dict[str, Any], kind: type[Spec], name: str) -> Spec | None:
        return self._spec(tables.get(name, {}), kind, (name,))

    def _spec(self, table: Any, kind: type[Spec], place: Place) -> Spec | None:
        """The table as a struct, every key judged on its own; None if any was wrong."""
        name = next(str(part) for part in reversed(place) if isinstance(part, str))
        if not isinstance(table, dict):
            self._refuse(place, f"{name} is a table, not {table!r}")
            return None
        before = len(self.problems)
        types = get_type_hints(kind, include_extras=True)
        values = {}
        for key, value in table.items():
            if key not in types:
                self._refuse((*place, key), f"unknown key {key} in {name}; expected one of {', '.join(types)}")
                continue
            if (inner := _struct(types[key])) is not None:
                values[key] = self._spec(value, inner, (*place, key))
                continue
            try:
                values[key] = msgspec.convert(value, types[key])
            except msgspec.ValidationError as error:
                reason = str(error).replace(" | null", "")  # TOML has no null; a key is left out.
                self._refuse((*place, key), f"{key} = {value!r}: {reason[0].lower()}{reason[1:]}")
        for field in msgspec.structs.fields(kind):
            if field.required and field.name not in table:
                self._refuse(place, f"a {name} needs {field.name}")
        return kind(**values) if len(self.problems) == before else None

    def _services(self, given: Any, prefix: tuple[str, ...] = ()) -> dict[str, Setting]:
        """Settings by dotted name, whether that was written as one quoted key or as a table of tables."""
        if not isinstance(given, dict):
            self._refuse(("services",), f"services is a table of settings, not {given!r}")
            return {}
        found: dict[str, Setting] = {}
        for key, value in given.items():
            place = (*prefix, key)
            name = ".".join(place)
            if isinstance(value, dict):
                found |= self._services(value, place)
                continue
            if not re.fullmatch(r"[\w-]+(\.[\w-]+)+", name):
                self._refuse(
                    ("services", *place), f"{name!r} is not a setting; expected a dotted name like remediator.armed"
                )
            try:
                found[name] = msgspec.convert(value, Setting)
            except msgspec.ValidationError as error:
                self._refuse(("services", *place), f"{name}: {error}")
        return found

    def _refuse(self, place: Place, reason: str) -> None:
        self.problems.append(Problem(line_of(self._lines, place), reason))


def _struct(kind: Any) -> type[msgspec.Struct] | None:
    """The struct that a key's type is, or may be; None: it is none."""
    for each in (kind, *get_args(kind)):
        if isinstance(each, type) and issubclass(each, msgspec.Struct):
            return each
    return None
