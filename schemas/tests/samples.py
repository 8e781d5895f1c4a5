"""One sample of every message, the same forever: golden files are made from these."""

from __future__ import annotations

import numpy as np

from foliot_schemas import (
    Claim,
    ClockState,
    CollectiveBatch,
    CollectiveGroup,
    CollectiveRow,
    Command,
    Confirmation,
    DelayBatch,
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
    Lease,
    MoveAnswer,
    MoveOrder,
    Nic,
    Node,
    NodeHomes,
    NodePaths,
    Outcome,
    Placement,
    PortState,
    ProgressRow,
    RankState,
    Rejected,
    StampBatch,
    StampRow,
    WorkerBatch,
    WorkerState,
)
from foliot_schemas.columns import pack
from foliot_schemas.fit import FIT_LATER
from foliot_schemas.flow import FLOW_LATER
from foliot_schemas.notice import Echo, Notice, NoticeSeen
from foliot_schemas.observation import DELAY_LATER, Stream

_T = 1_790_000_000_000_000_000
_WAY = Placement(peer="node3", rail="rail0", via="rail1", entropy=2)


def _without(later, rows, dtype):
    """Columns as somebody sends them who does not know those that were added: these rows have the others."""
    before = np.dtype([(name, dtype[name]) for name in dtype.names if name not in later])
    return pack(np.array(rows, dtype=before))


SAMPLES = (
    ClockState(
        clock="node3", reference="node0", offset_ns=-49_999_123, drift_ppb=-12_345.5, hard_bound_ns=9_000, bound_ns=400,
        growth_ppb=80.0, as_of_ns=123_456_789_000, void_after_ns=143_456_789_000, status="synchronised", window=17,
        neighbours=7, surplus_ns=55.5,
    ),
    StampBatch.of(
        np.array([(0, 0, 1_000, 6_000), (0, 1, 7_000, 12_500)], dtype=StampRow),
        node="node0", since_ns=0, until_ns=2_000_000_000, epoch_ns=_T, tolerated=3,
        streams=(
            Stream(path="node0.rail0>node3.rail0#2", initiator="node0", responder="node3", kind="kernel"),
        ),
    ),
    FitBatch(
        columns=_without(
            FIT_LATER,
            [(0, 1, 123_456_789_000, 49_999_000, 123.5, 900.0, 12_345.5, 100.0, -8_000.0, 9_000.0, 20.0, 0)],
            FitRow,
        ),
        shard="sync-node1", term=9, window=17, part=0, parts=1, clocks=("node0", "node3"),
        heard=(
            HeardNode(node="node0", until_ns=124_000_000_000, since_ns=40_000_000, epoch_ns=_T, utc_error_ns=2_000_000),
        ),
    ),
    DelayBatch(
        columns=_without(
            DELAY_LATER, [(0, 1, 2, 2, 5_000, 5_200, 9_000, _T), (1, 2, 0, 0, 0, 0, 0, _T - 150_000_000)], DelayRow
        ),
        node="node3", at_ns=_T, interval_ns=100_000_000, bound_ns=400,
        paths=("node0.rail0>node3.rail0#2", "node1.rail0>node3.rail0#0"),
    ),
    FlowBatch(
        columns=_without(FLOW_LATER, [(0, 4, 2, 10_000_000, 450_000_000, 0, 20_000_000, 5_200_000, 90_000)], FlowRow),
        node="node0", at_ns=_T, interval_ns=500_000_000, flows=("node0.rail0>node3.rail0",),
    ),
    HopBatch.of(
        np.array([(0, 1, 0x0A640000), (0, 3, 0x0A640007)], dtype=HopRow),
        node="node0", at_ns=_T, paths=("node0.rail0>node3.rail0#2", "node0.rail0>node3.rail0#3"),
    ),
    CollectiveBatch.of(
        np.array(
            [
                (0, 0, 0, 0, 41, 97, -1, _T, _T + 5_000_000, 1_024, 1_024, 4_096),
                (1, 0, 0, 0, 42, 98, -1, _T + 100, 0, 1_024, 1_024, 4_096),
                (1, 1, 1, 0, 7, 99, 1, _T + 200, 0, 16, 0, 64),
            ],
            dtype=CollectiveRow,
        ),
        np.array([(0, 0, 41, 41), (1, 0, 42, 41), (1, 1, 7, 7)], dtype=ProgressRow),
        job="pretrain-7", node="node3", at_ns=_T + 1_000_000, bound_ns=400, size=8,
        ranks=(
            RankState(rank=6, process="stopped", since_ns=_T - 9_000, heard_ns=_T),
            RankState(rank=7, process="running", since_ns=_T - 8_000, heard_ns=_T + 900, data_ns=77, dropped=3),
        ),
        groups=("0", "2"),
        members=(CollectiveGroup(name="2", description="dp", members=((1, 2, 4),)),),
        operations=("all_reduce", "send"), types=("float32",),
    ),
    PortState(
        node="node3", nic="node3.rail0", at_ns=_T, carrier=False, admin_up=True, carrier_down_count=2,
        carrier_up_count=2, fault="boot", change=True, counters={"rx_packets": 12, "tx_bytes": 1_200},
    ),
    Event(
        id="boot/node3.rail0/carrier-2/down", kind="flap", who="node3.rail0", state="down", at_ns=_T, since_ns=_T,
        confidence=1.0, evidence={"carrier_down_count": 2, "penalty": 1_000.0, "suppressed": False},
        fault="boot/node3.rail0/carrier-2",
    ),
    Command(
        id="c1", verb="reroute", node="node3", cause="e1", issued_ns=_T, deadline_ns=_T + 2_000_000_000,
        lease_revision=9, away=("rail0",), placements=(_WAY,), fault="boot/node3.rail0/carrier-2",
    ),
    Outcome(
        id="o1", command="c1", verb="reroute", node="node3", status="done", cause="e1", started_ns=_T, moved_ns=_T + 1,
        confirmed_ns=_T + 2, expected=1,
        confirmations=(Confirmation(peer="node0", rail="rail0", at_ns=_T + 2, round_trip_ns=40_000),),
        away=("rail0",), placements=(_WAY,), undo=(_WAY,), fault="boot/node3.rail0/carrier-2",
    ),
    Node(
        name="node3", agent_port=7947, probe_port=7946,
        nics=(
            Nic(
                name="node3.rail0", rail="rail0", device="eth1", address="10.0.0.3", clock="node3",
                service_address="10.200.0.4", path_addresses=("100.64.0.4", "100.65.0.4"), entropies=(49_200, 49_201),
            ),
        ),
    ),
    NodePaths(node="node3", lease_revision=9, away=("rail0",), placements=(_WAY,), backups=(_WAY,)),
    NodeHomes(node="node3", lease_revision=9, placements=(_WAY,)),
    Lease(holder="remediator@host"),
    Job(name="pretrain-7", nics=("node0.rail0", "node3.rail0"), priority=5, since_ns=_T),
    MoveOrder(
        id="e2/contention/rail0/9/1", shard="remediator-node2", rail="rail0", term=9, who="10.1.0.0",
        cause="e2", fault="10.1.0.0/contention-1", issued_ns=_T, deadline_ns=_T + 2_000_000_000,
        moves=(HomeMove(node="node0", way=_WAY, home=_WAY),), take_back=True,
    ),
    MoveAnswer(
        order="e2/contention/rail0/9/1", shard="remediator-node2", term=9, at_ns=_T, statuses=("refused",),
        guard="no-alternative",
    ),
    WorkerBatch(
        job="pretrain-7", node="node3", at_ns=_T, bound_ns=400, size=16,
        workers=(
            WorkerState(
                process=81_000_000_000, rank=6, generation=2, step=1_203, stage="training", alive="running",
                meet="192.0.2.3:40123", since_ns=_T - 5, heard_ns=_T - 1, left_ns=_T - 900, formed_ns=_T - 700,
                copied_ns=_T - 300, first_step_ns=_T - 100, state_bytes=24_000_000, state_from=5, lost_steps=1,
            ),
            WorkerState(
                process=82_000_000_000, rank=-1, generation=0, step=0, stage="spare", alive="running", since_ns=_T,
                heard_ns=_T,
            ),
        ),
    ),
    GpuError(node="node3", at_ns=_T, bound_ns=400, xid=79, device="0000:65:00", message="GPU has fallen off the bus."),
    Drain(node="node3", at_ns=_T, by="anna", reason="a fan is to be replaced"),
    Claim(node="node3", host="5f0c9a1be2d34477"),
    Rejected(service="sync", subject="foliot.v1.observation.stamps.node0", reason="not a stamps.v1", head=b"\x01\x02"),
    Notice(
        node="node3", rail="rail0", state="lost", fault="boot/node3.rail0/carrier-2", sequence=5, at_ns=_T, span="ab"
    ),
    NoticeSeen(node="node0", sequence=5, moved=True),
    Echo(node="node3", token=77, answer=False),
)  # fmt: skip
