"""What a trial is: a scenario drawn from its case and seed alone, and what is to be said of it.

A fabric has one rail, and four hosts at 100 Mb/s or eight at 50. Jobs run alone first, so that what each flow could get
is known. In the cases by turn each job has one flow in the direction that counts, so that it is clean while it is
alone.
"""

from __future__ import annotations

import random
from itertools import repeat
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from bench.contention.host_policies import best_of_two, rehash
from foliot_lab.scenario.spec import (
    RECOVERY_S,
    ClockSpec,
    Expectation,
    FabricSpec,
    FaultSpec,
    JobSpec,
    Scenario,
    WorkloadSpec,
)
from foliot_lab.scenario.topology import leaf_sizes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from foliot_lab.scenario.spec import JobKind, Placed, Setting

Policy = Literal["foliot", "hash", "rehash", "best-of-two", "planned", "spray"]
Improve = Literal["act", "advise"]

POLICIES: tuple[Policy, ...] = ("foliot", "hash", "rehash", "best-of-two", "planned", "spray")
"""Who gives flows their ways: the remediator, which moves them off contended links; the hash alone; each sender by
itself, as PLB and Hopper do; a plan at the start alone, in which no two share a link as far as the entropies permit; or
the leaves, which deal packets out to all."""
OF_HOSTS: dict[Policy, dict[str, Setting]] = {
    "rehash": {"extensions.modules": [rehash.__name__]},
    # It asks how late other paths are now. A probe's delay is known with the next one, so this is the probe's default.
    "best-of-two": {"extensions.modules": [best_of_two.__name__], "probe.sweep_hz": 5.0},
}
"""The policies by which each sender moves its own flows, and the settings that each needs."""
SIZES = {4: 100.0, 8: 50.0}
"""Mb/s of every link, by the number of hosts: what two processors carry with room to spare."""
CONTENTION = "fabric-contention"
NOTHING = "none"
"""The verdict where nothing is to be said."""
CURED_S = 5.0
"""Within so long a collision is to be cured."""

_SWEEP_HZ = 1.0
_MOST_UNEXPLAINED = 100_000
"""Commands that the lab permits where hosts move flows by a policy: no event is the reason of one."""
_SOLO_S = 4.0
_CLEARED_S = 5
"""What is said of a job that loads itself while it is alone is over so long after: 2 s, and as much again for a machine
that is late."""
_STEP_S = (0.1, 0.4)
"""Of a step at a link's rate."""
_ONE_FLOW: tuple[JobKind, ...] = ("pairs", "ring", "all-to-all")
"""Kinds of job that have one flow out of, and one into, each of two hosts at most."""


class Shared(NamedTuple):
    """How many flows share the fullest fabric link before anything is moved."""

    least: int
    most: int


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One trial."""

    case: str
    seed: int
    expected: str
    """The verdict; `NOTHING`; or empty: whatever is true."""
    origin: str
    """The job or fault with which that begins; empty: nothing is to be found."""
    shared: Shared | None
    """None: any number of flows."""
    priority: str
    """The job that is not to yield; empty: there is none."""
    after_s: float
    """For how long moves count after a cure."""
    scenario: Scenario


class _Drawn(NamedTuple):
    """What is particular to a case."""

    jobs: Sequence[JobSpec]
    until_s: float
    expected: str = NOTHING
    origin: str = ""
    shared: Shared | None = Shared(0, 0)
    spines: int = 4
    leaves: int = 2
    faults: Sequence[FaultSpec] = ()
    priority: str = ""


class _Table:
    """What there is to draw from.

    Parameters:
        hosts: their number.
        after_s: how long a trial goes on in which moves after a cure count.
    """

    def __init__(self, chance: random.Random, hosts: int, after_s: float) -> None:
        self.chance = chance
        self.hosts = hosts
        self.mbps = SIZES[hosts]
        self.cured_and_after_s = CURED_S + after_s

    def leaves(self, count: int = 2) -> list[list[str]]:
        """The hosts of each leaf, both in any order."""
        numbers = iter(range(self.hosts))
        blocks = [[f"node{next(numbers)}" for _ in range(size)] for size in leaf_sizes(self.hosts, count)]
        for block in blocks:
            self.chance.shuffle(block)
        self.chance.shuffle(blocks)
        return blocks

    def hosts_in_any_order(self) -> list[str]:
        """All of them."""
        return [host for block in self.leaves() for host in block]

    def leaf(self, host: str, count: int = 2) -> int:
        """The number of a host's leaf."""
        sizes = leaf_sizes(self.hosts, count)
        return [leaf for leaf, size in enumerate(sizes) for _ in range(size)][int(host.removeprefix("node"))]

    def job(self, name: str, kind: JobKind, hosts: Sequence[str], at_s: float, placed: Placed, **more: Any) -> JobSpec:
        """A job with steps of a drawn size, which take as long where its receivers read slowly."""
        step_s = self.chance.uniform(*_STEP_S)
        step_mb = round(step_s * (more.get("read_mbps") or self.mbps) / 8, 3)
        return JobSpec(name=name, kind=kind, hosts=tuple(hosts), step_mb=step_mb, at_s=at_s, placed=placed, **more)

    def jobs(
        self, hosts: Iterable[Sequence[str]], at_s: Sequence[float], placed: Placed, kinds: Iterable[JobKind] = ()
    ) -> list[JobSpec]:
        """As many jobs as there are beginnings; each a pair where no kinds are given."""
        pairs: Iterable[JobKind] = repeat("pairs")
        each = zip("abcd", hosts, kinds or pairs, at_s, strict=False)
        return [self.job(name, kind, ends, begins_s, placed) for name, ends, kind, begins_s in each]

    def meeting(self, count: int) -> list[float]:
        """When so many jobs begin: the first may have been there for a while, and the others come together."""
        last_s = self.chance.randint(4, 7)
        first_s = self.chance.choice((last_s, last_s - 2, last_s - 3))
        return [float(first_s)] + [float(last_s)] * (count - 1)

    def watched_s(self, begun_s: float) -> float:
        """When to end where only what is said counts. What is said late, or moved for nothing, is still seen."""
        return begun_s + self.chance.randint(10, 14)


def _collision(table: _Table) -> _Drawn:
    """Two or three flows of as many jobs meet on one link while others idle."""
    count = table.chance.choice((2, 3)) if table.hosts > 4 else 2
    leaves = table.chance.choice((2, 4)) if count == 2 and table.hosts > 4 else 2
    at_s = table.meeting(count)
    kinds, hosts = zip(*_one_flow_each(table, count, leaves), strict=True)
    jobs = table.jobs(hosts, at_s, "collide", kinds)
    return _Drawn(
        jobs, max(at_s) + table.cured_and_after_s, CONTENTION, jobs[-1].name, Shared(2, count), leaves=leaves,
        spines=table.chance.choice((3, 4)) if count == 3 else table.chance.choice((2, 3, 4)),
    )  # fmt: skip


def _one_flow_each(table: _Table, count: int, leaves: int) -> list[tuple[JobKind, list[str]]]:
    """Kinds and hosts of jobs that have one flow each over a link that all can share."""
    blocks = table.leaves(leaves)
    here, there = blocks[:2]
    if leaves > 2:  # they meet on the way up, or on the way down alone, so that the two links can be told apart
        there = [block[0] for block in blocks[1:]]
        here, there = table.chance.choice(((here, there), (there, here)))
    jobs: list[tuple[JobKind, list[str]]] = []
    for number in range(count):
        kind = table.chance.choice(_ONE_FLOW)
        more = here[count + number :: count][:1], there[count + number :: count][:1]
        # A ring that has two hosts on either leaf has one flow there and one back, too.
        is_long = kind == "ring" and leaves == 2 and all(more) and table.chance.random() < 0.5
        ends = [here[number], there[number]]
        jobs.append((kind, [here[number], *more[0], there[number], *more[1]] if is_long else ends))
    return jobs


def _alone(table: _Table) -> _Drawn:
    """One job, which fills the links of its own NICs."""
    here, there = table.leaves()
    size = table.chance.randint(1, len(here))
    kind = table.chance.choice(("pairs", "ring")) if size > 1 else table.chance.choice(_ONE_FLOW)
    at_s = float(table.chance.randint(1, 4))
    return _Drawn([table.job("a", kind, here[:size] + there[:size], at_s, "apart")], table.watched_s(at_s))


def _apart(table: _Table) -> _Drawn:
    """Jobs of different hosts, by different ways."""
    here, there = table.leaves()
    at_s = table.meeting(table.chance.randint(2, min(3, len(here))))
    kinds = [table.chance.choice(_ONE_FLOW) for _ in at_s]
    return _Drawn(table.jobs(zip(here, there, strict=True), at_s, "apart", kinds), table.watched_s(max(at_s)))


def _own_nic(table: _Table) -> _Drawn:
    """Flows of as many jobs leave one NIC."""
    source, *others = table.hosts_in_any_order()
    at_s = table.meeting(table.chance.choice((2, 3)))
    jobs = table.jobs(((source, other) for other in others), at_s, "apart")
    return _Drawn(jobs, table.watched_s(max(at_s)), "own-nic", jobs[-1].name)


def _incast(table: _Table) -> _Drawn:
    """Flows of one job, or of as many, arrive at one NIC."""
    receiver, *others = table.hosts_in_any_order()
    count = table.chance.choice((2, 3))
    if table.chance.random() < 0.5:
        at_s = [float(_CLEARED_S + table.chance.randint(0, 3))]
        jobs = [table.job("a", "incast", (receiver, *others[:count]), at_s[0], "apart")]
    else:
        at_s = table.meeting(count)
        jobs = table.jobs(((other, receiver) for other in others), at_s, "apart")
    return _Drawn(jobs, table.watched_s(max(at_s)), "incast", jobs[-1].name)


def _slow_receiver(table: _Table) -> _Drawn:
    """An application that reads more slowly than the network brings; perhaps another job beside it."""
    here, there = table.leaves()
    at_s = float(_CLEARED_S + table.chance.randint(0, 3))
    read_mbps = round(table.chance.uniform(0.2, 0.6) * table.mbps, 1)
    jobs = [table.job("a", "pairs", (here[0], there[0]), at_s, "apart", read_mbps=read_mbps)]
    if table.chance.random() < 0.5:
        kind = table.chance.choice(_ONE_FLOW)
        jobs.append(table.job("b", kind, (here[1], there[1]), float(table.chance.randint(1, 4)), "apart"))
    return _Drawn(jobs, table.watched_s(at_s), "slow-receiver", "a")


def _reduced_rate(table: _Table) -> _Drawn:
    """The NIC of a sender or receiver, or all links up from the sender's leaf, lose a part of their rate."""
    here, there = table.leaves()
    at_s = float(table.chance.randint(1, 3))
    fault_s = at_s + table.chance.randint(4, 6)
    mbps, spines = round(table.chance.uniform(0.2, 0.6) * table.mbps, 1), table.chance.choice((2, 3, 4))
    places = [f"{table.chance.choice((here[0], there[0]))}.rail0"]
    if table.chance.random() < 0.5:
        places = [f"rail0.leaf{table.leaf(here[0])}-spine{spine}" for spine in range(spines)]
    return _Drawn(
        [table.job("a", "pairs", (here[0], there[0]), at_s, "hash")], table.watched_s(fault_s), "reduced-rate", "f1",
        spines=spines,
        faults=[
            FaultSpec(id=f"f{number}", at_s=fault_s, kind="rate", where=place, mbps=mbps)
            for number, place in enumerate(places, start=1)
        ],
    )  # fmt: skip


def _full(table: _Table) -> _Drawn:
    """Jobs want more than all links up from a leaf carry, and are spread as well as can be."""
    here, there = table.leaves()
    count, spines = (2, 1) if table.hosts == 4 else (table.chance.choice((3, 4)), 2)
    at_s = table.meeting(count)
    jobs = table.jobs(zip(here, there, strict=True), at_s, "apart")
    return _Drawn(jobs, table.watched_s(max(at_s)), shared=Shared(2, 2), spines=spines)


def _jobs(table: _Table) -> _Drawn:
    """Two all-to-all and two rings, each of two hosts on different leaves: no NIC limits them but their own."""
    kinds: list[JobKind] = ["all-to-all", "all-to-all", "ring", "ring"]
    table.chance.shuffle(kinds)
    at_s = [float(table.chance.randint(1, 6)) for _ in kinds]
    jobs = table.jobs(zip(*table.leaves(), strict=True), at_s, "hash", kinds)
    return _Drawn(jobs, max(at_s) + table.cured_and_after_s, "", shared=None)


def _priority(table: _Table) -> _Drawn:
    """Three flows meet where there are two ways: one job has to be alone, as it matters most."""
    here, there = table.leaves()
    at_s, first = table.meeting(3), table.chance.randrange(3)
    jobs = table.jobs(zip(here, there, strict=True), at_s, "collide")
    jobs[first] = msgspec.structs.replace(jobs[first], priority=10)
    return _Drawn(
        jobs, max(at_s) + table.cured_and_after_s, CONTENTION, jobs[-1].name, Shared(3, 3), spines=2,
        priority=jobs[first].name,
    )  # fmt: skip


def _link_lost(table: _Table) -> _Drawn:
    """A collision, and while it is found and moved, a link of the leaf where it is loses its carrier."""
    drawn = _collision(table)
    met_s = max(job.at_s for job in drawn.jobs)
    sender = str((drawn.jobs[0].hosts or ("",))[0])
    where = f"rail0.leaf{table.leaf(sender, drawn.leaves)}-spine{table.chance.randrange(drawn.spines)}"
    fault = FaultSpec(id="f1", at_s=met_s + table.chance.randint(10, 30) / 10, kind="link-down", where=where, for_s=6.0)
    until_s = fault.at_s + (fault.for_s or 0.0) + RECOVERY_S
    return drawn._replace(until_s=until_s, expected="", origin="", faults=[fault])


_CASES: dict[str, tuple[Callable[[_Table], _Drawn], tuple[int, ...]]] = {
    "collision": (_collision, (4, 8)),
    "alone": (_alone, (4, 8)),
    "apart": (_apart, (4, 8)),
    "own-nic": (_own_nic, (4, 8)),
    "incast": (_incast, (4, 8)),
    "slow-receiver": (_slow_receiver, (4, 8)),
    "reduced-rate": (_reduced_rate, (4, 8)),
    "full": (_full, (4, 8)),
    "jobs": (_jobs, (8,)),
    "priority": (_priority, (8,)),
    "link-lost": (_link_lost, (4, 8)),
}
CASES = tuple(_CASES)
LOOKALIKES = ("alone", "apart", "own-nic", "incast", "slow-receiver", "reduced-rate", "full")
"""What is clean, or seems like a collision and is none."""


def sizes_of(case: str) -> tuple[int, ...]:
    """The numbers of hosts with which a case can be drawn."""
    return _CASES[case][1]


def case_of(seed: int, only: Sequence[str] = ()) -> str:
    """The case whose turn a seed has: two of five are collisions, the others the lookalikes; or some cases alone."""
    if only:
        return only[seed % len(only)]
    round_of_five, turn = divmod(seed, 5)
    return "collision" if turn < 2 else LOOKALIKES[(3 * round_of_five + turn - 2) % len(LOOKALIKES)]


def draw(
    case: str, seed: int, sizes: Collection[int] = tuple(SIZES), *,
    after_s: float = 60.0, silent: bool = False, fabric: int = 0,
) -> Trial:  # fmt: skip
    """The trial of a case and seed, in which flows go as the case has it and the remediator does what it does.

    Parameters:
        sizes: numbers of hosts to draw from.
        silent: routers do not answer.
        fabric: another number makes another fabric of the same trial, with another hash.

    Raises:
        ValueError: the case needs another number of hosts.
    """
    drawing, possible = _CASES[case]
    if not (some := sorted({*sizes} & {*possible})):
        raise ValueError(f"{case} needs {' or '.join(map(str, possible))} hosts")
    chance = random.Random(f"{seed}/{case}")
    table = _Table(chance, chance.choice(some), after_s)
    drawn = drawing(table)
    return Trial(
        case=case, seed=seed, expected=drawn.expected, origin=drawn.origin, shared=drawn.shared,
        priority=drawn.priority, after_s=after_s,
        scenario=Scenario(
            fabric=FabricSpec(
                hosts=table.hosts, rails=1, leaves=drawn.leaves, spines=drawn.spines, link_mbps=table.mbps,
                icmp=not silent,
            ),
            clock=ClockSpec(seed=random.Random(f"{seed}/{case}/{fabric}").getrandbits(31)),
            services={"probe.sweep_hz": _SWEEP_HZ}, workload=WorkloadSpec(kind="none"), jobs=tuple(drawn.jobs), solo_s=_SOLO_S,
            faults=tuple(drawn.faults), duration_s=drawn.until_s,
        ),
    )  # fmt: skip


def under(trial: Trial, policy: Policy, improve: Improve = "act") -> Trial:
    """The same trial under a policy. Where its flows do not go as the case has it, whatever is true may be said."""
    scenario = trial.scenario
    services = scenario.services | {"remediator.improve": improve if policy == "foliot" else "off"}
    if policy in {"foliot", "hash"}:
        return msgspec.structs.replace(trial, scenario=msgspec.structs.replace(scenario, services=services))
    if policy in OF_HOSTS:
        other = msgspec.structs.replace(
            scenario, services=services | OF_HOSTS[policy], expect=Expectation(unexplained=_MOST_UNEXPLAINED)
        )
    else:
        placed = "apart" if policy == "planned" else "hash"
        other = msgspec.structs.replace(
            scenario, services=services, fabric=msgspec.structs.replace(scenario.fabric, spray=policy == "spray"),
            jobs=tuple(msgspec.structs.replace(job, placed=placed) for job in scenario.jobs),
        )  # fmt: skip
    return msgspec.structs.replace(trial, scenario=other, expected="", origin="", shared=None)
