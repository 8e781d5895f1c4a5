"""Every subject, stream and bucket, and the message that travels on it.

The last token of a subject names the thing concerned, and is the partition key.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from foliot_schemas.claim import Claim
from foliot_schemas.clock import ClockState
from foliot_schemas.codec import WireError
from foliot_schemas.collective import CollectiveBatch
from foliot_schemas.command import Command, Outcome
from foliot_schemas.drain import Drain
from foliot_schemas.event import Event
from foliot_schemas.fit import FitBatch
from foliot_schemas.flow import FlowBatch
from foliot_schemas.gpu import GpuError
from foliot_schemas.hops import HopBatch
from foliot_schemas.inventory import Lease, Node, NodeHomes, NodePaths
from foliot_schemas.job import Job
from foliot_schemas.move import MoveAnswer, MoveOrder
from foliot_schemas.names import escape, unescape
from foliot_schemas.observation import DelayBatch, PortState, StampBatch
from foliot_schemas.rejected import Rejected
from foliot_schemas.worker import WorkerBatch

ROOT = "foliot.v1"

SERVICES = ("probe", "agent", "sync", "detector", "remediator", "gateway")


class Channel(msgspec.Struct, frozen=True, kw_only=True):
    """A family of subjects that carry one kind of message."""

    name: str
    tokens: tuple[str, ...]
    """Names of the variable tokens, in order; the message's fields of these names say the same."""
    message: type[msgspec.Struct]
    publishers: tuple[str, ...]
    readers: tuple[str, ...]
    stream: str = ""
    """JetStream stream that captures it; empty: core NATS only."""
    summary: str

    def subject(self, *names: str) -> str:
        """The subject for these names, escaped.

        Raises:
            ValueError: the number of names is not the number of variable tokens.
        """
        if len(names) != len(self.tokens):
            raise ValueError(f"{self.name} takes {len(self.tokens)} names ({', '.join(self.tokens)}), not {len(names)}")
        return ".".join((ROOT, self.name, *map(escape, names)))

    @property
    def all(self) -> str:
        """The wildcard subject of the whole family."""
        return ".".join((ROOT, self.name, *("*" for _ in self.tokens)))

    def concerned(self, subject: str) -> str:
        """The name of the thing that a subject is about: its last token; empty: that is no name."""
        token = subject.rpartition(".")[2]
        if "_" not in token:  # quicker, and mostly so
            return token
        try:
            return unescape(token)
        except ValueError:
            return ""

    def check(self, subject: str, message: msgspec.Struct) -> None:
        """Refuses a message whose subject does not name the thing that the message is about.

        The bus lets nobody publish on another's subject, so both must agree. The check also refuses a message that was
        published on a subject of another kind. A holder of the right to have a stream deliver can have it delivered
        here. The message then comes under the subject that its writer was permitted.

        Raises:
            WireError: the message names somebody else than its subject, which may also be none of this channel's.
        """
        head = f"{ROOT}.{self.name}."
        tokens = subject.removeprefix(head).split(".")
        if not subject.startswith(head) or len(tokens) != len(self.tokens):
            raise WireError(f"it was published as {subject}, not below {head}")
        for field, token in zip(self.tokens, tokens, strict=True):
            name = getattr(message, field)
            if escape(name) != token:
                raise WireError(f"its {field} is {name}, its subject says {token}")


STAMPS = Channel(
    name="observation.stamps", tokens=("node",), message=StampBatch, publishers=("probe",), readers=("sync",),
    summary="Transmit and receive timestamps of both directions of those streams of the clocks' mesh "
    "that a node initiates",
)  # fmt: skip
DELAY = Channel(
    name="observation.delay", tokens=("node",), message=DelayBatch, publishers=("probe",),
    readers=("detector", "remediator", "gateway"),
    summary="One-way delay and loss per path and interval; at once when a path falls silent or speaks again",
)  # fmt: skip
PORT = Channel(
    name="observation.port", tokens=("node",), message=PortState, publishers=("probe",),
    readers=("detector", "remediator", "gateway"),
    summary="Link state at once on change, counters every second",
)  # fmt: skip
FLOW = Channel(
    name="observation.flow", tokens=("node",), message=FlowBatch, publishers=("probe",),
    readers=("detector", "remediator", "gateway", "anyone"),
    summary="TCP traffic between service addresses, and between NICs' own, as the sender's kernel counts it",
)  # fmt: skip
HOPS = Channel(
    name="observation.hops", tokens=("node",), message=HopBatch, publishers=("probe",),
    readers=("probe", "detector", "remediator", "gateway", "anyone"),
    summary="The routers of a node's paths: at once when they are found or change, all of them every half minute",
)  # fmt: skip
COLLECTIVE = Channel(
    name="observation.collective", tokens=("job", "node"), message=CollectiveBatch, publishers=("agent",),
    readers=("detector", "anyone"),
    summary="How far the ranks of a job on a node are, and which collectives they began and ended when",
)  # fmt: skip
WORKER = Channel(
    name="observation.worker", tokens=("job", "node"), message=WorkerBatch, publishers=("agent",),
    readers=("detector", "remediator", "gateway", "anyone"),
    summary="The processes of a job whose ranks can be replaced, and its spares: at once on change, and each second",
)  # fmt: skip
GPU = Channel(
    name="observation.gpu", tokens=("node",), message=GpuError, publishers=("agent",),
    readers=("detector", "gateway", "anyone"),
    summary="An error that a GPU's driver wrote to the kernel's log",
)  # fmt: skip
CLOCK = Channel(
    name="clock", tokens=("clock",), message=ClockState, publishers=("sync",), readers=("anyone",),
    summary="How to read the reference time off a clock, and how far to trust it",
)  # fmt: skip
FITS = Channel(
    name="fits", tokens=("shard",), message=FitBatch, publishers=("sync",), readers=("sync",),
    summary="What a shard of sync has made of a window: every pair of clocks that it has fitted, "
    "for the one that leads",
)  # fmt: skip
EVENT = Channel(
    name="event", tokens=("kind", "who"), message=Event, publishers=("detector", "remediator"),
    readers=("remediator", "gateway", "anyone"), stream="EVENTS", summary="A verdict with its evidence",
)  # fmt: skip
COMMAND = Channel(
    name="command", tokens=("verb", "node"), message=Command, publishers=("remediator",), readers=("agent", "gateway"),
    stream="COMMANDS", summary="A change asked of a node",
)  # fmt: skip
OUTCOME = Channel(
    name="outcome", tokens=("verb", "node"), message=Outcome, publishers=("agent",),
    readers=("remediator", "gateway", "anyone"), stream="OUTCOMES", summary="What became of it",
)  # fmt: skip
MOVE = Channel(
    name="move.order", tokens=("shard",), message=MoveOrder, publishers=("remediator",), readers=("remediator",),
    summary="Moves off a contended link that a rail's coordinator wants of a shard's nodes",
)  # fmt: skip
MOVED = Channel(
    name="move.answer", tokens=("shard",), message=MoveAnswer, publishers=("remediator",), readers=("remediator",),
    summary="What became of them, for the coordinator",
)  # fmt: skip
REJECTED = Channel(
    name="rejected", tokens=("service",), message=Rejected, publishers=("every service",), readers=("anyone",),
    summary="A message that a service could not read, or that its stream does not store",
)  # fmt: skip

CHANNELS = (
    STAMPS, DELAY, PORT, FLOW, HOPS, COLLECTIVE, WORKER, GPU, FITS, CLOCK, EVENT, COMMAND, OUTCOME, MOVE, MOVED, REJECTED,
)  # fmt: skip


class StreamDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """A JetStream stream."""

    name: str
    subjects: tuple[str, ...]
    keep_days: int
    duplicate_window_s: int = 300
    """A time longer than any publisher repeats itself for. JetStream forgets message ids after it."""


STREAMS = (
    StreamDefinition(name="EVENTS", subjects=(f"{ROOT}.event.>",), keep_days=30),
    StreamDefinition(name="COMMANDS", subjects=(f"{ROOT}.command.>",), keep_days=30),
    StreamDefinition(name="OUTCOMES", subjects=(f"{ROOT}.outcome.>",), keep_days=30),
)
"""The streams. Nodes write outcomes, so outcomes have a stream of their own. In one stream with commands, a node
could use a command's message id first. The stream would then drop the command as a duplicate."""


class Bucket(msgspec.Struct, frozen=True, kw_only=True):
    """A JetStream key-value bucket; keys are escaped names."""

    name: str
    message: type[msgspec.Struct]
    key: str
    field: str
    """Field of the message that holds the key's name; empty: none does."""
    writers: tuple[str, ...]
    readers: tuple[str, ...]
    storage: Literal["file", "memory"] = "file"
    keep_s: float = 0.0
    """Entries vanish after this long; 0: never."""

    def subject(self, *names: str) -> str:
        """The subject on which a change of the key of this name is published; without a name, that of every key."""
        return ".".join(("$KV", self.name, *(map(escape, names) if names else (">",))))

    def check(self, key: str, message: msgspec.Struct) -> None:
        """As `Channel.check`, for the key that a value was read under.

        Raises:
            WireError: the value names somebody else than its key.
        """
        if self.field and getattr(message, self.field) != key:
            raise WireError(f"its {self.field} is {getattr(message, self.field)}, its key says {key}")


CLOCKS = Bucket(
    name="clocks", message=ClockState, key="clock", field="clock", storage="memory",
    writers=("sync",), readers=("sync", "probe", "agent", "gateway", "anyone"),
)  # fmt: skip
INVENTORY = Bucket(
    name="inventory", message=Node, key="node", field="name",
    writers=("agent",), readers=("probe", "agent", "sync", "detector", "remediator", "gateway", "scheduler", "anyone"),
)  # fmt: skip
PATHS = Bucket(
    name="paths", message=NodePaths, key="node", field="node",
    writers=("remediator",), readers=("probe", "agent", "detector", "remediator", "gateway", "anyone"),
)  # fmt: skip
HOMES = Bucket(
    name="homes", message=NodeHomes, key="node", field="node",
    writers=("remediator",), readers=("remediator", "gateway", "anyone"),
)  # fmt: skip
LEASES = Bucket(
    name="leases",
    message=Lease,
    key="role",
    field="",
    keep_s=1.5,
    writers=("sync", "remediator"),
    readers=("sync", "remediator", "agent"),
)
"""The leases, kept on file. Revisions fence commands, and must go on rising when the server starts again."""
CLAIMS = Bucket(
    name="claims", message=Claim, key="thing", field="",
    writers=("agent",), readers=("probe", "agent", "anyone"),
)  # fmt: skip
JOBS = Bucket(
    name="jobs", message=Job, key="job", field="name", storage="memory", keep_s=60.0,
    writers=("scheduler",), readers=("scheduler", "detector", "remediator", "gateway", "anyone"),
)  # fmt: skip
"""The registered jobs. Nobody is told that a key has vanished, so readers count the time themselves."""
DRAINS = Bucket(
    name="drains", message=Drain, key="node", field="node",
    writers=("scheduler",), readers=("scheduler", "remediator", "gateway", "anyone"),
)  # fmt: skip
BUCKETS = (CLOCKS, INVENTORY, PATHS, HOMES, LEASES, CLAIMS, JOBS, DRAINS)
