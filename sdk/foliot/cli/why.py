"""``foliot why``: the slowest flow of a job, what it suffers from, since when, and its figures now and before."""

from __future__ import annotations

import argparse  # noqa: TC003 - argparse's private type is part of the signature
import sys
import urllib.parse
from typing import TYPE_CHECKING

import msgspec

from foliot.cli import gateway
from foliot.cli.gateway import GatewayError
from foliot.text.messages import clock_time, duration
from foliot_schemas.job import FOUND

if TYPE_CHECKING:
    from collections.abc import Iterator

_MANY = 8
"""Nodes that are named; more are counted."""


class _Flow(msgspec.Struct, frozen=True, kw_only=True):
    """The shown part of a flow; the gateway's answer has more."""

    flow: str
    path: str
    rate_bps: float
    usual_bps: float
    share: float | None
    rtt_ns: int
    least_rtt_ns: int
    delay_ns: int
    in_band_ns: int = 0
    """0 also by gateways of an earlier version, which do not know it."""


class _Job(msgspec.Struct, frozen=True, kw_only=True):
    job: str
    registered: bool
    priority: int
    nodes: tuple[str, ...]
    flows: int
    carried_bps: float
    slowest: str
    slowest_share: float | None


class _Cause(msgspec.Struct, frozen=True, kw_only=True):
    event: str
    sentence: str
    since_ns: int
    confidence: float


class _Rank(msgspec.Struct, frozen=True, kw_only=True):
    event: str
    nodes: tuple[str, ...]
    sentence: str
    since_ns: int
    confidence: float


class _Worker(msgspec.Struct, frozen=True, kw_only=True):
    rank: int
    node: str
    stage: str
    generation: int
    step: int
    alive: str
    reason: str = ""


class JobWhy(msgspec.Struct, frozen=True, kw_only=True):
    """The gateway's answer about one job."""

    job: _Job
    slowest: _Flow | None
    cause: _Cause | None
    ranks: tuple[_Rank, ...] = ()
    """Empty also by gateways of an earlier version, which do not know of ranks."""
    workers: tuple[_Worker, ...] = ()
    """Likewise, of workers."""
    spares: int = 0


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser(
        "why",
        help="show a job's slowest flow, and what it suffers from",
        description="Shows the slowest flow of a job, the trouble that it suffers from, since when, and its figures "
        "now and before; and the workers of a job whose ranks can be replaced. Without a name it lists the jobs: "
        "registered ones, those that their workers tell of, and groups of nodes that talk to each other (found:…).",
        epilog="Examples: foliot why · foliot why pretrain-7 · foliot why found:node0 --json",
    )
    parser.add_argument("job", nargs="?", default="", metavar="JOB", help="name of the job (default: list all jobs)")
    parser.add_argument("--json", action="store_true", help="what the gateway answers, as JSON")
    gateway.add_option(parser)
    parser.set_defaults(func=_why)


def _why(arguments: argparse.Namespace) -> int:
    try:
        base = gateway.base_of(arguments.gateway)
        below = f"/{urllib.parse.quote(arguments.job, safe='')}" if arguments.job else ""
        answer = gateway.get(base, f"/api/v1/jobs{below}")
        try:
            lines = (
                of_job(msgspec.json.decode(answer, type=JobWhy))
                if arguments.job
                else of_jobs(msgspec.json.decode(answer, type=list[_Job]))
            )
        except msgspec.MsgspecError as error:
            raise GatewayError(gateway.not_understood(base, error)) from error
    except GatewayError as error:
        sys.stderr.write(f"foliot why: {error}\n")
        return 1
    for line in [answer.decode()] if arguments.json else lines:
        print(line)
    return 0


def of_jobs(jobs: list[_Job]) -> Iterator[str]:
    """A line for each job."""
    for job in jobs:
        slowest = f", the slowest {job.slowest}{_of_usual(job.slowest_share)}" if job.slowest else ""
        yield f"{_headline(job)}{slowest}"
    if not jobs:
        yield "no job is registered, and no nodes talk to each other"


def of_job(found: JobWhy) -> Iterator[str]:
    """The lines about one job."""
    yield _headline(found.job)
    yield f"  nodes    {_some(found.job.nodes)}"
    for rank in found.ranks:
        doubt = f", confidence {rank.confidence:.2g}" if rank.confidence < 1 else ""
        yield f"  rank     {rank.sentence}{doubt}"
        yield f"           on {_some(rank.nodes)}, since {clock_time(rank.since_ns, '%Y-%m-%d %H:%M:%S')}: {rank.event}"
    yield from _of_workers(found)
    flow, cause = found.slowest, found.cause
    if flow is None:
        yield "  slowest  no flow has anything to send"
        return
    yield f"  slowest  {flow.flow}" + (f" by {flow.path}" if flow.path else "")
    yield f"  gets     {_mbps(flow.rate_bps)}{_of_usual(flow.share)}" + (
        f": before, {_mbps(flow.usual_bps)}" if flow.share is not None else ""
    )
    delays = [
        ("round trip", flow.rtt_ns), ("at least", flow.least_rtt_ns),
        ("one way by probes", flow.delay_ns), ("one way by TCP's stamps", flow.in_band_ns),
    ]  # fmt: skip
    known = [f"{name} {duration(delay_ns)}" for name, delay_ns in delays if delay_ns]
    if known:
        yield f"  delays   {', '.join(known)}"
    if cause is None:
        yield "  cause    none that anybody has said"
        return
    doubt = f", confidence {cause.confidence:.2g}" if cause.confidence < 1 else ""
    yield f"  cause    {cause.sentence}{doubt}"
    yield f"  since    {clock_time(cause.since_ns, '%Y-%m-%d %H:%M:%S')}"
    yield f"  event    {cause.event}"


def _of_workers(found: JobWhy) -> Iterator[str]:
    """The lines about the processes of a job whose ranks can be replaced: those of one stage together."""
    alike: dict[tuple[str, str, int, str], list[_Worker]] = {}
    for worker in found.workers:
        alike.setdefault((worker.stage, worker.alive, worker.generation, worker.reason), []).append(worker)
    for (stage, alive, generation, reason), workers in alike.items():
        first, last = min(worker.step for worker in workers), max(worker.step for worker in workers)
        said = [
            stage, *([f"process {alive}"] if alive != "running" else []), f"generation {generation}",
            f"step {first:,}" + (f" to {last:,}" if last > first else ""),
        ]  # fmt: skip
        yield f"  workers  {', '.join(said)}" + (f": {reason}" if reason else "")
        yield f"           {_some(tuple(f'rank {worker.rank} on {worker.node}' for worker in workers))}"
    if found.workers or found.spares:
        yield f"  spares   {found.spares}"


def _headline(job: _Job) -> str:
    how = (
        f"registered, priority {job.priority}" if job.registered
        else "found by who talks to whom" if job.job.startswith(FOUND) else "told of by its workers"
    )  # fmt: skip
    counted = f"nodes: {len(job.nodes)}, flows: {job.flows}"
    return f"{job.job}  {how}, {counted}, {_mbps(job.carried_bps)}"


def _of_usual(share: float | None) -> str:
    return "" if share is None else f" ({share:.0%} of its usual)"


def _mbps(rate_bps: float) -> str:
    return f"{rate_bps / 1e6:,.3g} Mb/s"


def _some(names: tuple[str, ...]) -> str:
    more = [f"{len(names) - _MANY} more"] if len(names) > _MANY else []
    return ", ".join([*names[:_MANY], *more])
