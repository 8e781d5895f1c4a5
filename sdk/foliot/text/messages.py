"""Every message in plain words, with its numbers: one line each, for a person who watches the bus."""

from __future__ import annotations

import collections
import datetime as dt
from ipaddress import IPv4Address
from typing import TYPE_CHECKING, Any

import numpy as np

from foliot.text.events import headline
from foliot_schemas import (
    Claim,
    ClockState,
    CollectiveBatch,
    Command,
    DelayBatch,
    Drain,
    Event,
    FitBatch,
    FlowBatch,
    GpuError,
    HopBatch,
    Job,
    Lease,
    MoveAnswer,
    MoveOrder,
    Node,
    NodeHomes,
    NodePaths,
    Outcome,
    PortState,
    Rejected,
    StampBatch,
    Witness,
    WorkerBatch,
)
from foliot_schemas.event_kinds import is_relief

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import msgspec

_MANY = 4
"""Parts of a list that are named; more are counted."""
_UNITS_NS = {"ns": 1, "ms": 1_000_000, "s": 1_000_000_000}
_TIMES = frozenset({"last_heard_ns", "reuse_at_ns", "spoke_ns"})
"""Fields of the evidence that are reference times; all other numbers with such a unit are lengths of time."""
_LATEST_NS = 1 << 63


def one_line(message: msgspec.Struct) -> str:
    """One line about a message, without the time."""
    return _SENTENCES[type(message)](message)


def happened_ns(message: msgspec.Struct) -> int:
    """The reference time at which it happened; 0: the message does not say."""
    if isinstance(message, (Event, PortState, DelayBatch, CollectiveBatch, WorkerBatch, GpuError, Drain)):
        return message.at_ns
    if isinstance(message, Command):
        return message.issued_ns
    if isinstance(message, Outcome):
        return max(message.started_ns, message.moved_ns, message.confirmed_ns)
    return 0


def is_bad(message: msgspec.Struct) -> bool:
    """Whether it tells of trouble."""
    if isinstance(message, Event):
        return not is_relief(message)
    if isinstance(message, Outcome):
        return message.status in {"refused", "failed"}
    if isinstance(message, ClockState):
        return message.status in {"disrupted", "unsynchronised"}
    return isinstance(message, Rejected | GpuError) or (isinstance(message, PortState) and not message.carrier)


def duration(length_ns: float) -> str:
    """A length of time with three digits and a fitting unit."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if abs(length_ns) >= size:
            return (
                f"{length_ns / size:.3g} {unit}" if abs(length_ns) < 1_000 * size else f"{length_ns / size:.0f} {unit}"
            )
    return f"{length_ns:.0f} ns"


def clock_time(at_ns: int, form: str = "%H:%M:%S") -> str:
    """A time (UTC) in a form of strftime, and its milliseconds."""
    at = dt.datetime.fromtimestamp(at_ns // 1_000_000_000, tz=dt.UTC)
    return f"{at:{form}}.{at_ns // 1_000_000 % 1_000:03d}Z"


def _event(event: Event) -> str:
    guard = f": {event.policy}" if event.policy else ""
    doubt = f", confidence {event.confidence:.2g}" if event.confidence < 1 else ""
    # A time of 0 is none: that part does not apply.
    known = [(name, value) for name, value in event.evidence.items() if name not in _TIMES or value]
    told = [_evidence(name, value) for name, value in known]
    told += [f"{what} {_some(names)}" for what, names in event.related.items() if names]
    return f"{headline(event)}{guard}{doubt}" + (f" ({', '.join(told)})" if told else "")


def _command(command: Command) -> str:
    advice = "is advised to" if command.advice else "is told to"
    return f"{command.node} {advice} {command.verb}" + _ways(command) + _losses(command)


def _losses(command: Command) -> str:
    """Who loses by the command, and for whom."""
    gaining, lost_mbps = command.evidence.get("gaining"), command.evidence.get("lost_mbps")
    if gaining is None or not isinstance(lost_mbps, int | float):
        return ""
    return f" (for {gaining}; others lose {lost_mbps:.0f} Mb/s)"


def _outcome(outcome: Outcome) -> str:
    done = f"{outcome.node} {outcome.verb}: {_status(outcome)}"
    wire = f", {len(outcome.confirmations)} of {outcome.expected} confirmed on the wire" if outcome.expected else ""
    if outcome.confirmed_ns and not outcome.confirmations:
        wire = ", confirmed"  # by the handler of its verb, and by no datagram of a peer's
    took = f" after {duration(outcome.confirmed_ns - outcome.started_ns)}" if wire and outcome.confirmed_ns else ""
    return done + _ways(outcome) + wire + took + (f": {outcome.reason}" if outcome.reason else "")


def _status(outcome: Outcome) -> str:
    if outcome.status == "already":  # nothing was moved
        return "was so already" + (", as it found by itself" if outcome.armed else "")
    return outcome.status + (" by itself" if outcome.armed else "")


def _ways(message: Command | Outcome) -> str:
    parts = [f"away from {rail}" for rail in message.away] + [f"back on {rail}" for rail in message.back]
    parts += [f"{way.peer} on {way.rail} by {way.via}#{way.entropy}" for way in message.placements]
    parts += [
        f"{name} {_plain(value)}" for name, value in message.action.items() if name != "verb" and value not in ("", [])
    ]
    return f" ({_some(parts)})" if parts else ""


def _plain(value: object) -> str:
    """A value of an order, whatever its verb. A list is shown by its length, because it may be long."""
    if isinstance(value, list | dict):
        return f"({len(value)})"
    return str(value)


def _port(port: PortState) -> str:
    carrier = "has its carrier" if port.carrier else "has no carrier"
    admin = "" if port.admin_up else ", set down by an administrator"
    return f"{port.nic} {carrier}{admin}, lost it {port.carrier_down_count} times"


def _delay(batch: DelayBatch) -> str:
    rows = batch.rows()
    said = [
        f"{batch.paths[row['path']]} {words}"
        for witness, words in ((Witness.FELL_SILENT, "fell silent"), (Witness.SPEAKS_AGAIN, "speaks again"))
        for row in rows[rows["witness"] == witness]
    ]
    heard = rows[rows["witness"] == Witness.DESTINATION]
    sent, received = int(heard["sent"].sum()), int(heard["received"].sum())
    if sent:
        said.append(f"heard {len(heard)} paths, {received} of {sent} probes")
    delays = heard["median_ns"][heard["received"] > 0]
    if len(delays):
        said.append(f"medians {duration(int(delays.min()))} to {duration(int(delays.max()))}")
    bound = f"within {duration(batch.bound_ns)}" if batch.bound_ns >= 0 else "clock not synchronised"
    return f"{batch.node}: {_some(said) or 'nothing heard'} in {duration(batch.interval_ns)}, {bound}"


def _flows(batch: FlowBatch) -> str:
    rows = batch.rows()
    said = []
    for row in rows[np.argsort(-rows["acked_bytes"], kind="stable")]:
        mbps = row["acked_bytes"] * 8e3 / max(batch.interval_ns, 1)
        again = f", {row['retransmitted']} segments again" if row["retransmitted"] else ""
        said.append(f"{batch.flows[row['flow']]} {mbps:.4g} Mb/s{again}")
    return f"{batch.node}: {_some(said) or 'no traffic'} in {duration(batch.interval_ns)}"


def _collectives(batch: CollectiveBatch) -> str:
    rows, progress = batch.rows(), batch.progress()
    said = []
    for place, rank in enumerate(batch.ranks):
        own = progress[progress["rank"] == place]
        done, begun = int(own["done"].sum()), int(own["begun"].sum())
        waiting = rows[(rows["rank"] == place) & (rows["ended_ns"] == 0)]
        at = ""
        if len(waiting):
            first = waiting[waiting["order"].argmin()]
            operation, group = batch.operations[int(first["operation"])], batch.groups[int(first["group"])]
            at = f", waits in {operation} {int(first['number'])} of the group {group}"
        how = "" if rank.process == "running" else f" ({rank.process})"
        said.append(f"rank {rank.rank}{how} has done {done:,} of {begun:,} collectives{at}")
    return f"{batch.job} on {batch.node}: {_some(said) or 'no rank'}"


def _workers(batch: WorkerBatch) -> str:
    said = []
    for worker in batch.workers:
        who = f"rank {worker.rank}" if worker.rank >= 0 else "a spare"
        how = "" if worker.alive == "running" else f" ({worker.alive})"
        step = f", {worker.step:,} steps done" if worker.step else ""
        reason = f": {worker.reason}" if worker.reason else ""
        said.append(f"{who}{how} is {worker.stage} in generation {worker.generation}{step}{reason}")
    return f"{batch.job} on {batch.node}: {_some(said) or 'no process'}"


def _gpu_error(error: GpuError) -> str:
    of = f" of {error.device}" if error.device else ""
    return f"{error.node} logged XID {error.xid}{of}" + (f": {error.message}" if error.message else "")


def _drain(drain: Drain) -> str:
    wish = "may be used again" if drain.over else "is to be left by ranks"
    return (
        f"{drain.node} {wish}"
        + (f", says {drain.by}" if drain.by else "")
        + (f": {drain.reason}" if drain.reason else "")
    )


def _hops(batch: HopBatch) -> str:
    rows = batch.rows()
    said = []
    for number, path in enumerate(batch.paths):
        routers = {int(row["hop"]): str(IPv4Address(int(row["address"]))) for row in rows[rows["path"] == number]}
        way = [routers.get(hop, "?") for hop in range(1, max(routers, default=0) + 1)]
        said.append(f"{path} by {' '.join(way) or 'nobody who answers'}")
    return f"{batch.node}: {_some(said) or 'no path'}"


def _stamps(batch: StampBatch) -> str:
    over = duration(batch.until_ns - batch.since_ns)
    return f"{batch.node}: {len(batch.rows())} probes in {over}, streams: {len(batch.streams)}"


def _fits(batch: FitBatch) -> str:
    part = f", part {batch.part + 1} of {batch.parts}" if batch.parts > 1 else ""
    return (
        f"{batch.shard}: {len(batch.rows())} pairs of clocks by {len(batch.heard)} nodes in window {batch.window}{part}"
    )


def _clock(clock: ClockState) -> str:
    by = f"by {clock.neighbours} neighbours in window {clock.window}"
    return (
        f"{clock.clock} is {clock.status}: offset {duration(clock.offset_ns)}, drift {clock.drift_ppb:.1f} ppb, "
        f"within {duration(clock.bound_ns)} (surely {duration(clock.hard_bound_ns)}), {by}"
    )


def _rejected(rejected: Rejected) -> str:
    return f"{rejected.service} could not read {rejected.subject}: {rejected.reason}"


def _node(node: Node) -> str:
    nics = _some(f"{nic.rail} {nic.device} {nic.address} (service {nic.service_address})" for nic in node.nics)
    return f"{node.name}: {nics}{', armed' if node.armed else ''}"


def _paths(paths: NodePaths) -> str:
    away = f"away from {', '.join(paths.away)}, " if paths.away else ""
    counts = f"destinations moved: {len(paths.placements)}, backups: {len(paths.backups)}"
    return f"{paths.node}: {away}{counts}, lease {paths.lease_revision}"


def _homes(homes: NodeHomes) -> str:
    return f"{homes.node}: homes chosen: {len(homes.placements)}, lease {homes.lease_revision}"


def _job(job: Job) -> str:
    return f"{job.name}: {_some(job.nics) or 'no NIC'}, priority {job.priority}"


def _move_order(order: MoveOrder) -> str:
    way = "back" if order.take_back else "another way"
    said = _some(f"{move.node} to {move.way.peer} {way}" for move in order.moves) or "nothing to move"
    return f"{order.shard}: {said} on {order.rail}{' (advice)' if order.advice else ''}, term {order.term}"


def _move_answer(answer: MoveAnswer) -> str:
    counts = collections.Counter(answer.statuses)
    by = f" by {answer.guard}" if answer.guard else ""
    return f"{answer.shard}: {_some(f'{count} {status}' for status, count in counts.items())}{by}"


def _claim(claim: Claim) -> str:
    return f"claimed by {claim.node}" + (f" on host {claim.host}" if claim.host else "")


def _lease(lease: Lease) -> str:
    return f"held by {lease.holder}"


def _some(parts: Iterable[str]) -> str:
    named = list(parts)
    more = [f"{len(named) - _MANY} more"] if len(named) > _MANY else []
    return ", ".join(named[:_MANY] + more)


def _evidence(name: str, value: float | str | bool) -> str:
    """A name and its value; the unit that a number's name ends with becomes a clock time or a fitting unit."""
    bare, _, unit = name.rpartition("_")
    if not bare or unit not in _UNITS_NS or isinstance(value, (bool, str)):
        return f"{name} {_value(value)}"
    if name in _TIMES and 0 <= value < _LATEST_NS:
        return f"{bare} {clock_time(int(value))}"
    return f"{bare} {duration(value * _UNITS_NS[unit])}"


def _value(value: float | str | bool) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


_SENTENCES: dict[type[msgspec.Struct], Callable[[Any], str]] = {
    Claim: _claim, ClockState: _clock, Command: _command, DelayBatch: _delay, Drain: _drain, Event: _event, FitBatch: _fits,
    CollectiveBatch: _collectives, FlowBatch: _flows, GpuError: _gpu_error, HopBatch: _hops, Job: _job, Lease: _lease, MoveAnswer: _move_answer,
    MoveOrder: _move_order, Node: _node, NodeHomes: _homes, NodePaths: _paths,
    Outcome: _outcome, PortState: _port, Rejected: _rejected, StampBatch: _stamps,
    WorkerBatch: _workers,
}  # fmt: skip
