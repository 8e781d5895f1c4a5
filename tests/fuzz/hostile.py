"""Messages that decode and mean harm: every field of its type and within its bounds, and as bad as that allows."""

from __future__ import annotations

from typing import get_args

import numpy as np
from hypothesis import strategies as st

from foliot_schemas import (
    ClockState,
    ClockStatus,
    CollectiveBatch,
    CollectiveGroup,
    CollectiveRow,
    Command,
    DelayBatch,
    DelayCount,
    DelayRow,
    Drain,
    Event,
    FitBatch,
    FitRow,
    FlowBatch,
    FlowRow,
    GpuError,
    HeardNode,
    HomeMove,
    HopBatch,
    HopRow,
    Job,
    MoveAnswer,
    MoveOrder,
    Nic,
    Node,
    NodeHomes,
    NodePaths,
    Outcome,
    OutcomeStatus,
    Placement,
    PortState,
    ProgressRow,
    RankState,
    Rejected,
    StampBatch,
    StampRow,
    WorkerBatch,
    WorkerState,
    event_kinds,
)
from foliot_schemas.bounds import FAR_NS
from foliot_schemas.clock import Timescale, UtcDisagreement
from foliot_schemas.fit import LONGEST_NS, sound
from foliot_schemas.move import MoveStatus
from foliot_schemas.observation import StampKind, Stream
from foliot_schemas.worker import Stage

NOW_NS = 1_790_000_000_000_000_000
SECOND_NS = 1_000_000_000
NODES = ("node0", "node1", "node2")
RAILS = ("rail0", "rail1")


def node(name: str, index: int = 0, entropies: int = 2) -> Node:
    """A sound record of a node."""
    nics = tuple(
        Nic(
            name=f"{name}.{rail}", rail=rail, device=rail, address=f"10.{number}.0.{index + 1}", clock=name,
            service_address=f"10.200.{number}.{index + 1}", entropies=tuple(range(49_200, 49_200 + entropies)),
            path_addresses=tuple(f"100.{64 + number}.{entropy}.{index + 1}" for entropy in range(entropies)),
        )
        for number, rail in enumerate(RAILS)
    )  # fmt: skip
    return Node(name=name, nics=nics, probe_port=7946, agent_port=7947)


INVENTORY = tuple(node(name, index) for index, name in enumerate(NODES))


def _is_sound(message: Event | StampBatch) -> bool:
    """Whether it passes where messages are decoded."""
    try:
        message.check()
    except ValueError:
        return False
    return True


times = st.one_of(
    st.integers(NOW_NS - 3 * SECOND_NS, NOW_NS + 3 * SECOND_NS),
    st.sampled_from([0, 1, -1, FAR_NS - 1, 1 - FAR_NS, NOW_NS]),
    st.integers(1 - FAR_NS, FAR_NS - 1),
)
counts = st.one_of(st.integers(0, 3), st.sampled_from([(1 << 32) - 1, 1 << 31]), st.integers(0, (1 << 32) - 1))
bounds = st.one_of(st.sampled_from([-1, 0, 400, FAR_NS]), st.integers(-1, FAR_NS))
FAR_S = FAR_NS // SECOND_NS
leaps = st.sampled_from([0, 1, -1])
kernel_words = st.fixed_dictionaries(
    {
        "tai_offset_s": st.sampled_from([0, 1, 37, 100_000]),
        "leap_s": st.one_of(st.none(), leaps),
        "leap_utc_ns": st.one_of(st.sampled_from([0, NOW_NS]), times),
    }
)
floats = st.one_of(
    st.sampled_from([0.0, 1.0, -1.0, 1.7976931348623157e308, 5e-324]), st.floats(allow_nan=False, allow_infinity=False)
)
words = st.one_of(st.sampled_from(["", "x", "boot1"]), st.text(max_size=8))
nodes = st.one_of(st.sampled_from(NODES), st.sampled_from([*NODES, "node9", "rack.node0", "é", "n" * 255]))
rails = st.sampled_from([*RAILS, *RAILS, "rail9"])
nics = st.builds("{}.{}".format, nodes, rails)
paths = st.one_of(
    st.builds("{}>{}#{}".format, nics, nics, st.integers(0, 3)),
    st.sampled_from(["nonsense", "node0.rail0>node1.rail0#65535", "a>b#01", ">#", "n" * 1_056]),
)
placements = st.builds(Placement, peer=nodes, rail=rails, via=rails, entropy=st.sampled_from([0, 1, 2, 65_535]))
evidence = st.dictionaries(
    st.sampled_from(["penalty", "reuse_at_ns", "suppressed", "half_life_s", "x"]),
    st.one_of(floats, st.integers(-(1 << 63), (1 << 63) - 1), words, st.booleans()),
    max_size=4,
)


def _rows(dtype: np.dtype, **columns: st.SearchStrategy) -> st.SearchStrategy:
    row = st.tuples(*(columns[name] for name in dtype.names))
    return st.lists(row, max_size=8).map(lambda rows: np.array(rows, dtype))


_far_ends = st.one_of(nics, st.sampled_from(["node1.rail0", "node2.rail1"]))


@st.composite
def _delay_batch(draw: st.DrawFn) -> DelayBatch:
    """Of paths that begin or end at the node; each row from the end of its path that the node is."""
    node = draw(nodes)
    paths, leaves = [], []
    for _ in range(3):
        own, far, entropy = f"{node}.{draw(rails)}", draw(_far_ends), draw(st.sampled_from([0, 0, 1, 2, 99_999]))
        leaves.append(draw(st.booleans()) or far.startswith(f"{node}."))
        paths.append(f"{own}>{far}#{entropy}" if leaves[-1] else f"{far}>{own}#{entropy}")
    rows = np.zeros(draw(st.integers(0, 8)), DelayRow)
    for row in rows:
        row["path"] = draw(st.integers(0, 2))
        row["witness"] = 0 if leaves[row["path"]] else draw(st.sampled_from([1, 1, 2, 3, 4, 255]))
        for name in ("sent", "received"):
            row[name] = draw(counts)
        for name in ("least_ns", "median_ns", "p99_ns", "last_ns"):
            row[name] = draw(times)
    entering = st.sampled_from([path for path in range(3) if not leaves[path]] or [0])
    counts_of_delays = _rows(DelayCount, path=entering, bucket=st.integers(0, 255), probes=st.integers(0, 255))
    histogram = draw(st.none() if all(leaves) else st.none() | counts_of_delays)
    return DelayBatch.of(
        rows, histogram, node=node, at_ns=draw(times), interval_ns=draw(st.sampled_from([0, 100_000_000, FAR_NS - 1])),
        bound_ns=draw(bounds), paths=tuple(paths),
    )  # fmt: skip


delay_batches = _delay_batch()


@st.composite
def _flow_batch(draw: st.DrawFn) -> FlowBatch:
    """Of flows that begin at the node."""
    node = draw(st.sampled_from([*NODES, "node9"]))
    counted = st.one_of(st.integers(0, SECOND_NS), st.sampled_from([0, FAR_NS - 1]))
    names = tuple(f"{node}.{draw(rails)}>{draw(_far_ends)}" for _ in range(3))
    both = [np.zeros(draw(st.integers(0, 4)), FlowRow) for _ in range(2)]
    for row in (row for rows in both for row in rows):
        row["flow"] = draw(st.integers(0, 2))
        for name in FlowRow.names[3:]:
            row[name] = draw(counted)
    return FlowBatch.of(
        *both, node=node, at_ns=draw(times), interval_ns=draw(st.sampled_from([0, SECOND_NS // 2, FAR_NS - 1])),
        flows=names, nic_flows=names,
    )  # fmt: skip


@st.composite
def _hop_batch(draw: st.DrawFn) -> HopBatch:
    """Of paths that begin at the node, over one of two routers or one that does not answer."""
    node = draw(st.sampled_from([*NODES, "node9"]))
    names = tuple(f"{node}.{draw(rails)}>{draw(_far_ends)}#{draw(st.integers(0, 2))}" for _ in range(3))
    rows = [
        (path, hop, draw(st.sampled_from([0x0A010000, 0x0A020000])))
        for path in range(3) for hop in (1, 2) if draw(st.booleans())
    ]  # fmt: skip
    return HopBatch.of(np.array(rows, HopRow), node=node, at_ns=draw(times), paths=names)


@st.composite
def _collective_batch(draw: st.DrawFn) -> CollectiveBatch:
    """Of two jobs of four ranks, which any node may claim, with groups that are told, are not, or are told otherwise."""
    counts = st.one_of(st.integers(0, 8), st.sampled_from([0, FAR_NS - 1]))
    ranks = draw(st.lists(st.integers(0, 3), max_size=4, unique=True))
    places = st.integers(0, max(len(ranks) - 1, 0))
    rows = np.zeros(draw(st.integers(0, 6)) if ranks else 0, CollectiveRow)
    for row in rows:
        row["rank"], row["group"] = draw(places), draw(st.integers(0, 1))
        row["operation"], row["peer"] = draw(st.integers(0, 2)), draw(st.integers(-1, 5))
        for name in ("number", "order", "elements_in", "elements_out", "bytes"):
            row[name] = draw(counts)
        row["began_ns"], row["ended_ns"] = draw(times), draw(st.one_of(st.just(0), times))
    progress = []
    for _ in range(draw(st.integers(0, 4)) if ranks else 0):
        begun = draw(counts)
        progress.append((draw(places), draw(st.integers(0, 1)), begun, draw(st.integers(0, begun))))
    groups = draw(st.sampled_from([("0", "1"), ("0", "1@1"), ("0@2", "1@999999999999999999999")]))
    runs = st.sampled_from([(), ((0, 1, 4),), ((0, 2, 2),), ((3, 0, 1), (0, 1, 3)), ((1, 0, 0),)])
    return CollectiveBatch.of(
        rows, np.array(progress, ProgressRow), job=draw(st.sampled_from(["pretrain", "other"])),
        node=draw(st.sampled_from([*NODES, "node9"])), at_ns=draw(times), bound_ns=draw(bounds), size=4,
        ranks=tuple(
            RankState(
                rank=rank, process=draw(st.sampled_from(["running", "stopped", "ended", "gone"])),
                since_ns=draw(st.sampled_from([0, 1, FAR_NS - 1])), heard_ns=draw(times), data_ns=draw(counts), cpu_delay_ns=draw(counts),
                generation=draw(st.sampled_from([0, 0, 0, 1, 2, (1 << 63) - 1])),
            )
            for rank in ranks
        ),
        groups=groups, members=tuple(CollectiveGroup(name=name, members=draw(runs)) for name in groups),
        operations=("all_reduce", "send", "recv"), types=("float32",),
    )  # fmt: skip


@st.composite
def _worker_batch(draw: st.DrawFn) -> WorkerBatch:
    """Of the same jobs: workers and spares that any node may have, in any stage of any generation."""
    states = tuple(
        WorkerState(
            process=process, rank=draw(st.integers(-1, 3)), generation=draw(st.sampled_from([0, 0, 1, 2, (1 << 63) - 1])),
            step=draw(counts), stage=draw(st.sampled_from(get_args(Stage))),
            alive=draw(st.sampled_from(["running", "running", "stopped", "ended", "gone"])),
            since_ns=draw(times), heard_ns=draw(times), first_step_ns=draw(st.one_of(st.just(0), times)),
        )
        for process in draw(st.lists(st.integers(0, 5), max_size=3, unique=True))
    )  # fmt: skip
    return WorkerBatch(
        job=draw(st.sampled_from(["pretrain", "other"])), node=draw(st.sampled_from([*NODES, "node9"])),
        at_ns=draw(times), bound_ns=draw(bounds), size=4, workers=states,
        xids=tuple(draw(st.lists(st.sampled_from([0, 31, 79, 65_535]), max_size=3))),
    )  # fmt: skip


flow_batches, hop_batches, collective_batches = _flow_batch(), _hop_batch(), _collective_batch()
worker_batches = _worker_batch()
gpu_errors = st.builds(
    GpuError, node=nodes, at_ns=times, bound_ns=bounds, xid=st.sampled_from([0, 31, 48, 64, 79, 119, 65_535]),
    device=words, message=words,
)  # fmt: skip
drains = st.builds(Drain, node=st.sampled_from(NODES), at_ns=times, over=st.booleans())
# Often near enough to each other to be weighed, and on both sides.
near = st.one_of(st.integers(0, 2 * SECOND_NS), st.integers(0, 2 * SECOND_NS), times)
stamp_rows = _rows(
    StampRow, stream=st.integers(0, 1), direction=st.sampled_from([0, 1, 0, 1, 2]), transmit_ns=near, receive_ns=near
)


@st.composite
def _stamp_batch(draw: st.DrawFn) -> StampBatch:
    """Of streams that begin at the node."""
    node = draw(st.sampled_from([*NODES, *NODES, "node9"]))
    streams = tuple(
        Stream(
            path=f"{node}.{draw(rails)}>{draw(_far_ends)}#{draw(st.sampled_from([0, 1, 99_999]))}",
            initiator=draw(st.sampled_from([node, node, "node2"])), responder=draw(st.sampled_from(["node1", "node0"])),
            kind=draw(st.sampled_from(get_args(StampKind))),
        )
        for _ in range(2)
    )  # fmt: skip
    return StampBatch.of(
        draw(stamp_rows), node=node, since_ns=draw(st.one_of(st.sampled_from([0, 0, 1]), times)),
        until_ns=draw(st.one_of(st.just(2 * SECOND_NS), times)), epoch_ns=draw(times), streams=streams,
        utc_error_ns=draw(bounds),
        monotonic_ns=draw(times),
        monotonic_ppb=draw(st.sampled_from([0.0, 1e7, -1e7])),
        tolerated=draw(st.sampled_from([0, 1, 3, 65_535])), **draw(kernel_words),
    )  # fmt: skip


stamp_batches = _stamp_batch().filter(_is_sound)
ports = st.builds(
    lambda node, rail, **state: PortState(node=node, nic=f"{node}.{rail}", **state), nodes, rails, at_ns=times,
    carrier=st.booleans(), admin_up=st.booleans(), fault=words, carrier_down_count=counts, carrier_up_count=counts,
    change=st.booleans(), counters=st.dictionaries(words, counts, max_size=2),
)  # fmt: skip
clock_states = st.builds(
    ClockState, clock=nodes, reference=words, offset_ns=times, drift_ppb=st.sampled_from([0.0, 1e7, -1e7, 5e-324]),
    hard_bound_ns=bounds, bound_ns=bounds, growth_ppb=floats, as_of_ns=times, void_after_ns=times,
    status=st.sampled_from(get_args(ClockStatus)), window=counts, neighbours=counts, surplus_ns=floats,
    wander_ppb=floats, stamp_noise_ns=floats, rate_wander_ppb=floats, monotonic_ns=times,
    monotonic_ppb=st.sampled_from([0.0, 1e7, -1e7, 5e-324]),
    epoch_ns=st.one_of(st.sampled_from([0, NOW_NS, NOW_NS]), times), utc_error_ns=bounds,
    timescale=st.sampled_from(get_args(Timescale)),
    utc_offset_s=st.one_of(st.sampled_from([0, 37]), st.integers(-FAR_S, FAR_S)),
    tai_offset_s=st.sampled_from([0, 1, 37, 100_000]), leap_s=leaps,
    leap_at_ns=st.one_of(st.sampled_from([0, NOW_NS]), times),
    utc_offset_error_ns=bounds, utc_disagreement=st.sampled_from(get_args(UtcDisagreement)),
)  # fmt: skip
fit_values = st.one_of(st.floats(-1e6, 1e6), floats)
# Nobody but sync may tell fits, and its own keep times together that are no more than an hour apart; the rest may be
# anything.
soon, since_1970 = st.integers(0, 3_000 * SECOND_NS), st.integers(NOW_NS, NOW_NS + 3_000 * SECOND_NS)
fit_rows = _rows(
    FitRow, initiator=st.integers(0, 2), responder=st.integers(0, 2), at_ns=soon, base_ns=since_1970,
    offset_ns=fit_values,
    variance=st.one_of(st.floats(1, 1e6), floats), slope_ppb=fit_values,
    slope_variance=st.one_of(st.floats(1, 1e6), floats),
    excess_ns=st.one_of(st.floats(0, 1e6), floats),
    lower_ns=fit_values, upper_ns=fit_values, noise_ns=st.one_of(st.just(20.0), floats),
    torn=st.sampled_from([0, 0, 0, 1, 255]),
)  # fmt: skip
heard_nodes = st.builds(
    HeardNode, node=st.sampled_from([*NODES, *NODES, "node9"]), until_ns=soon,
    since_ns=st.sampled_from([0, 5, LONGEST_NS]),
    epoch_ns=st.one_of(st.just(NOW_NS), since_1970), utc_error_ns=bounds,
    tai_offset_s=st.sampled_from([0, 1, 37, 100_000]),
    leap_s=st.one_of(st.none(), leaps), leap_utc_ns=st.one_of(st.just(NOW_NS), since_1970),
    monotonic_ns=times, monotonic_ppb=st.sampled_from([0.0, 1e7, -1e7]),
)  # fmt: skip
fit_batches = st.builds(
    lambda rows, heard: FitBatch.of(
        rows[sound(rows)], shard="sync", term=1, window=1, part=0, parts=1, clocks=NODES, heard=tuple(heard)
    ),
    fit_rows, st.lists(heard_nodes, max_size=4),
)  # fmt: skip


ids = st.sampled_from(["e1", "e2", "e3", "i" * 4_096])
events = st.builds(
    Event, id=ids, kind=st.sampled_from([*(kind.name for kind in event_kinds.kinds()), "x"]),
    who=st.one_of(nics, paths, nodes),
    state=st.sampled_from(
        ["down", "up", "admin-down", "admin-up", "silent", "lossy", "speaking", "dead", "alive", "disrupted", "x"]
    ),
    at_ns=times, since_ns=times, confidence=st.sampled_from([0.0, 0.5, 1.0]), evidence=evidence, fault=words,
    cause=words, policy=words,
).filter(_is_sound)  # fmt: skip
flows = st.one_of(st.builds("{}>{}".format, nics, nics), st.sampled_from(["node0.rail0>node1.rail0", "x", "a>b>c"]))
contentions = st.builds(
    Event, id=st.text("abcd", min_size=1, max_size=3), kind=st.just("contention"),
    who=st.one_of(st.sampled_from(["10.1.0.0", "10.2.0.0"]), nics, flows),
    state=st.sampled_from(["fabric-contention", "fabric-contention", "own-nic", "clear", "x"]), at_ns=times,
    since_ns=times, fault=words,
    related=st.fixed_dictionaries(
        {"flows": st.lists(flows, max_size=4).map(tuple)},
        optional={"links": st.lists(st.sampled_from(["10.1.0.0", "10.2.0.0", "x/out"]), max_size=3).map(tuple)},
    ),
)  # fmt: skip
ways = st.lists(placements, max_size=3).map(tuple)
turns = st.lists(rails, max_size=3).map(tuple)
revisions = st.sampled_from([0, 1, 7, (1 << 63) - 1])
commands = st.builds(
    Command, id=ids, verb=st.sampled_from(["reroute", "restore", "mark"]), node=nodes, cause=words, issued_ns=times,
    deadline_ns=times,
    lease_revision=revisions, away=turns, back=turns, placements=ways, advice=st.booleans(), fault=words,
)  # fmt: skip
outcomes = st.builds(
    Outcome, id=ids, command=ids, verb=st.sampled_from(["reroute", "restore", "mark"]), node=nodes,
    status=st.sampled_from(get_args(OutcomeStatus)), armed=st.booleans(), started_ns=times, moved_ns=times,
    confirmed_ns=times, away=turns, back=turns, placements=ways, undo=ways, fault=words, reason=words,
)  # fmt: skip
node_paths = st.builds(NodePaths, node=nodes, lease_revision=revisions, away=turns, placements=ways, backups=ways)
node_homes = st.builds(NodeHomes, node=nodes, lease_revision=revisions, placements=ways)
shard_roles = st.sampled_from(["remediator-node2", "remediator-node2", "remediator"])
move_orders = st.builds(
    MoveOrder, id=ids, shard=shard_roles, rail=rails, term=revisions, who=st.one_of(flows, st.just("10.1.0.0")),
    cause=words, fault=words, issued_ns=times, deadline_ns=times, take_back=st.booleans(), advice=st.booleans(),
    moves=st.lists(
        st.builds(HomeMove, node=nodes, way=placements, home=st.one_of(st.none(), placements)), max_size=3
    ).map(tuple),
)  # fmt: skip
move_answers = st.builds(
    MoveAnswer, order=ids, shard=shard_roles, term=revisions, at_ns=times, guard=words,
    statuses=st.lists(st.sampled_from(get_args(MoveStatus)), max_size=3).map(tuple),
)  # fmt: skip
jobs = st.builds(
    Job, name=st.sampled_from(["a", "b", "c"]), nics=st.lists(nics, max_size=3, unique=True).map(tuple),
    priority=st.sampled_from([0, -1_000, 1_000]), since_ns=times,
)  # fmt: skip
# Records come and go; those that contradict themselves are refused where they are decoded.
node_records = st.builds(
    lambda name, index, entropies, there: node(name, index, entropies) if there else Node(name=name, nics=()),
    nodes, st.integers(0, 200), st.integers(0, 3), st.booleans(),
)  # fmt: skip
rejections = st.builds(Rejected, service=nodes, subject=words, reason=words, head=st.binary(max_size=8))
