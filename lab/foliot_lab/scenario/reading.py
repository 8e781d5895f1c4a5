"""Reads a scenario from a TOML file, and reports all errors at once, each with its line."""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_type_hints

import msgspec

from foliot_lab.scenario.job_traffic import hosts_of
from foliot_lab.scenario.job_validation import job_problems, train_problems
from foliot_lab.scenario.spec import (
    RECOVERY_S,
    ClockSpec,
    Expectation,
    FabricSpec,
    FaultSpec,
    JobSpec,
    RunSpec,
    Scenario,
    Setting,
    TrainSpec,
    WorkloadSpec,
)
from foliot_lab.scenario.toml_lines import Place, line_of, lines_of
from foliot_lab.scenario.topology import HOSTS_PER_LEAF, leaf_sizes
from foliot_lab.scenario.validation import problems_of

if TYPE_CHECKING:
    from pathlib import Path


class Problem(msgspec.Struct, frozen=True, order=True):
    """One error in a scenario."""

    line: int
    reason: str


class ScenarioError(ValueError):
    """A scenario that cannot be run, with all its errors."""

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
        known = ("fabric", "clock", "services", "workload", "train", "job", "fault", "run", "expect")
        for key in tables.keys() - set(known):
            self._refuse((key,), f"unknown: {key}; expected one of {', '.join(known)}")
        fabric = self._table(tables, FabricSpec, "fabric")
        faults = self._faults(tables)
        jobs = self._array(tables, JobSpec, "job")
        train = self._table(tables, TrainSpec, "train") or TrainSpec()
        specs = _specs(tables, jobs, train)
        if fabric is not None:  # Otherwise errors in the fabric would be blamed on the faults and jobs too.
            hosts = _trained(specs, jobs, fabric)
            self._judge(fabric, faults, hosts, replaceable=any(each.is_replaceable for each in specs))
            for position, field, reason in job_problems(jobs, fabric):
                self._refuse(("job", position, field), reason)
            for field, reason in train_problems(train, fabric.hosts):
                self._refuse(("train", field), reason)
        run = self._table(tables, RunSpec, "run") or RunSpec()
        workload = self._table(tables, WorkloadSpec, "workload") or WorkloadSpec()
        if jobs:
            self._judge_beside_jobs(tables)
            workload = WorkloadSpec(kind="none")
        else:
            self._judge_load(workload, tables)
        self._judge_run(run, jobs, specs)
        present = [fault for fault in faults if fault is not None]
        jobs_there = [job for job in jobs if job is not None]
        ends = [fault.at_s + (fault.lasts_s or 0.0) for fault in present]
        ends += [job.at_s + (job.for_s or 0.0) for job in jobs_there]
        return Scenario(
            fabric=fabric or FabricSpec(),
            clock=self._table(tables, ClockSpec, "clock") or ClockSpec(),
            services=self._services(tables.get("services", {})),
            workload=workload,
            train=train,
            jobs=tuple(jobs_there),
            solo_s=run.solo_s,
            skip_waits=run.skip_waits,
            expect=self._table(tables, Expectation, "expect") or Expectation(),
            faults=tuple(present),
            duration_s=run.duration_s if run.duration_s is not None else max(ends, default=0.0) + RECOVERY_S,
        )

    def _judge(
        self, fabric: FabricSpec, faults: list[FaultSpec | None], trained: dict[str, int], *, replaceable: bool
    ) -> None:
        for position, field, reason in problems_of(faults, fabric, trained, replaceable=replaceable):
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
            reason = (
                "train has no load: a job takes what the links give while it reduces its gradients; "
                "see gradient_mb in [train]"
            )
            self._refuse(("workload", "load"), reason)

    def _judge_beside_jobs(self, tables: dict[str, Any]) -> None:
        """Refuses what goes with a workload alone."""
        if "workload" in tables:
            self._refuse(("workload",), "there are jobs; a scenario has either a [workload] or [[job]]s")
        if "train" in tables:
            self._refuse(("train",), "there are jobs; the keys of [train] go into the [[job]] of kind train")

    def _judge_run(self, run: RunSpec, jobs: list[JobSpec | None], specs: list[TrainSpec]) -> None:
        if run.skip_waits and jobs and not _goes_on_alone(jobs):
            self._refuse(("run", "skip_waits"), "skip_waits: what a job gets is measured for as long as the run lasts")
        if run.skip_waits and any(spec.is_restarted for spec in specs):
            reason = "skip_waits: nobody says when a job that lost a rank is whole again, if torchrun restarts it"
            self._refuse(("run", "skip_waits"), reason)
        if run.solo_s is not None and not jobs:
            self._refuse(("run", "solo_s"), "solo_s goes with [[job]]s; there is none")
        for position, job in enumerate(jobs):
            if job is not None and job.kind == "train" and job.train().outlives_ranks:
                self._judge_outliving(run, position, job)
            if job is not None and run.duration_s is not None and job.at_s >= run.duration_s:
                self._refuse(("job", position, "at_s"), f"{job.name} would begin when the run is over")

    def _judge_outliving(self, run: RunSpec, position: int, job: JobSpec) -> None:
        """Refuses what would halt a job that takes a halted rank for a lost one."""
        if run.solo_s is not None:
            self._refuse(("run", "solo_s"), f"{job.name} cannot be halted while others run alone: it would lose ranks")
        if job.at_s:
            self._refuse(("job", position, "at_s"), f"{job.name} cannot wait: halted, it would lose ranks")

    def _faults(self, tables: dict[str, Any]) -> list[FaultSpec | None]:
        return [
            msgspec.structs.replace(fault, id=fault.id or f"f{position}") if fault is not None else None
            for position, fault in enumerate(self._array(tables, FaultSpec, "fault"), start=1)
        ]

    def _array(self, tables: dict[str, Any], kind: type[Spec], name: str) -> list[Spec | None]:
        """The tables of an array as structs; None for each that was wrong."""
        given = tables.get(name, [])
        if not isinstance(given, list):
            self._refuse((name,), f"{name}s are written as [[{name}]], each its own table")
            return []
        return [self._spec(table, kind, (name, position)) for position, table in enumerate(given)]

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
                reason = str(error).replace(" | null", "")  # TOML has no null; a file omits such a key.
                self._refuse((*place, key), f"{key} = {value!r}: {reason[0].lower()}{reason[1:]}")
        for field in msgspec.structs.fields(kind):
            if field.required and field.name not in table:
                self._refuse(place, f"a {name} needs {field.name}")
        return kind(**values) if len(self.problems) == before else None

    def _services(self, given: Any, prefix: tuple[str, ...] = ()) -> dict[str, Setting]:
        """Settings by dotted name, from quoted keys and from tables of tables."""
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


def _specs(tables: dict[str, Any], jobs: list[JobSpec | None], train: TrainSpec) -> list[TrainSpec]:
    """The training jobs of a scenario: one, or none."""
    workload = tables.get("workload")
    if isinstance(workload, dict) and workload.get("kind") == "train":
        return [train]
    return [job.train() for job in jobs if job is not None and job.kind == "train"]


def _goes_on_alone(jobs: list[JobSpec | None]) -> bool:
    """Whether there is but one job, which trains for the whole run."""
    lasting = (job is None or (job.kind == "train" and not job.at_s and job.for_s is None) for job in jobs)
    return len(jobs) == 1 and all(lasting)


def _trained(specs: list[TrainSpec], jobs: list[JobSpec | None], fabric: FabricSpec) -> dict[str, int]:
    """The hosts of a training job, spares too, each with its number of processes."""
    found = [(job.train(), hosts_of(job, fabric)) for job in jobs if job is not None and job.kind == "train"]
    if not found and specs:  # the workload, which is on all hosts
        found = [(specs[0], tuple(f"node{host}" for host in range(fabric.hosts)))]
    return {host: spec.ranks_per_host for spec, hosts in found for host in hosts}


def _struct(kind: Any) -> type[msgspec.Struct] | None:
    """The struct in a key's type, which may be optional; None: it has none."""
    for each in (kind, *get_args(kind)):
        if isinstance(each, type) and issubclass(each, msgspec.Struct):
            return each
    return None
