"""Foliot's contract: every message, subject, stream and bucket. Pure data, no I/O.

Times are int64 nanoseconds of the reference clock unless a field says otherwise. Names of nodes, NICs, paths and clocks
are plain here. They are escaped only in a subject.
"""

from foliot_schemas.claim import Claim
from foliot_schemas.clock import ClockState, ClockStatus
from foliot_schemas.codec import WireError, decode, encode
from foliot_schemas.collective import (
    CollectiveBatch,
    CollectiveGroup,
    CollectiveRow,
    ProgressRow,
    RankState,
)
from foliot_schemas.command import Command, Confirmation, Outcome, OutcomeStatus
from foliot_schemas.drain import Drain
from foliot_schemas.event import Event
from foliot_schemas.event_kinds import EventKind
from foliot_schemas.fit import FitBatch, FitRow, HeardNode
from foliot_schemas.flow import FlowBatch, FlowRow
from foliot_schemas.gpu import GpuError
from foliot_schemas.hops import HopBatch, HopRow
from foliot_schemas.inventory import Lease, Nic, Node, NodeHomes, NodePaths
from foliot_schemas.job import Job
from foliot_schemas.move import HomeMove, MoveAnswer, MoveOrder
from foliot_schemas.observation import (
    DelayBatch,
    DelayCount,
    DelayRow,
    HostLoad,
    PortChange,
    PortState,
    StampBatch,
    StampRow,
    Witness,
)
from foliot_schemas.orders import Order, OrderError, RankChange, ReplaceRank, Reroute, Restore, Verb
from foliot_schemas.placement import SERVICE_ADDRESSES, Placement
from foliot_schemas.rejected import Rejected
from foliot_schemas.worker import WorkerBatch, WorkerState

__all__ = [
    "SERVICE_ADDRESSES",
    "Claim",
    "ClockState",
    "ClockStatus",
    "CollectiveBatch",
    "CollectiveGroup",
    "CollectiveRow",
    "Command",
    "Confirmation",
    "DelayBatch",
    "DelayCount",
    "DelayRow",
    "Drain",
    "Event",
    "EventKind",
    "FitBatch",
    "FitRow",
    "FlowBatch",
    "FlowRow",
    "GpuError",
    "HeardNode",
    "HomeMove",
    "HopBatch",
    "HopRow",
    "HostLoad",
    "Job",
    "Lease",
    "MoveAnswer",
    "MoveOrder",
    "Nic",
    "Node",
    "NodeHomes",
    "NodePaths",
    "Order",
    "OrderError",
    "Outcome",
    "OutcomeStatus",
    "Placement",
    "PortChange",
    "PortState",
    "ProgressRow",
    "RankChange",
    "RankState",
    "Rejected",
    "ReplaceRank",
    "Reroute",
    "Restore",
    "StampBatch",
    "StampRow",
    "Verb",
    "WireError",
    "Witness",
    "WorkerBatch",
    "WorkerState",
    "decode",
    "encode",
]
