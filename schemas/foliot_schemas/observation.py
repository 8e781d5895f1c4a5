"""The observations of probes: timestamps, delays, ports. There are many, and they may be lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import numpy as np

from foliot_schemas.bounds import (
    FAR_NS,
    MOST_PATHS,
    Bound,
    Count,
    Finite,
    Integer,
    KernelCount,
    LongName,
    Name,
    Share,
    Span,
    Text,
    Time,
    Word,
)
from foliot_schemas.columns import pack, rows_once, unpack
from foliot_schemas.names import ends_at, node_of, starts_at

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from numpy.typing import NDArray

Columns = Annotated[dict[Word, bytes], msgspec.Meta(max_length=64)]

_MOST_REMEMBERED = 1 << 20
"""Names of paths in the batches remembered: some 80 MB, in a fleet that has so many."""
_SHOWN = 256
MOST_CHANGES = 64
"""Of one port in its word: 32 losses and returns, some 7 KB. Of more, the oldest are told by the kernel's counters alone."""

StampKind = Literal["hardware", "kernel", "user"]

StampRow = np.dtype([("stream", "<u2"), ("direction", "u1"), ("transmit_ns", "<i8"), ("receive_ns", "<i8")])
"""One probe. `stream` indexes the batch's streams; `direction` is 0 from initiator to responder, 1 back.
Stamps are local times: each of the clock of the host that took it."""

DelayRow = np.dtype(
    [
        ("path", "<u2"),
        ("witness", "u1"),
        ("sent", "<u4"),
        ("received", "<u4"),
        ("least_ns", "<i8"),
        ("median_ns", "<i8"),
        ("p99_ns", "<i8"),
        ("last_ns", "<i8"),
        ("sequence", "<i8"),
        ("full_sent", "<u2"),
        ("full_received", "<u2"),
        ("full_bytes", "<u2"),
    ]
)
"""One path in one interval. `path` indexes the batch's paths. `witness` is who says so, see `Witness`: 0 the source, 1 the
destination, 2 the destination as the path fell silent, 3 as it speaks again. One-way delays are of the probes received (0 where
none was), `last_ns` is when the witness last sent on (source) or heard (destination) the path (0: never), reference time. `sequence` is the
number of the probe sent last (source) or of the highest heard (destination), which rises over restarts of the sender; 0: not said. `full_sent` and
`full_received` are how many of the destination's counts were padded to full size, which is `full_bytes`, as an IP packet on the path; 0: none are sent."""

DELAY_LATER = frozenset({"sequence", "full_sent", "full_received", "full_bytes"})
"""Columns of `DelayRow` that senders before 0.2 leave out."""


class Witness:
    """Who says so: values of the column `witness`."""

    SOURCE = 0
    """The sending end: `sent` counts, `received` is 0."""
    DESTINATION = 1
    """The receiving end: `received` counts; `sent` is what the sequence numbers heard prove to have been sent."""
    FELL_SILENT = 2
    """The receiving end, at once: nothing was heard for the path's silence time."""
    SPEAKS_AGAIN = 3
    """The receiving end, at once: a silent path was heard again."""


class Stream(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A sequence of probes both ways between two NICs with one entropy, and the clocks that stamp them."""

    path: LongName
    """From initiator to responder."""
    initiator: Name
    """The initiator's clock."""
    responder: Name
    """The responder's clock."""
    kind: StampKind
    """The worse of the two ends' kinds of stamp."""
    pure_forth: Count = 0
    """How many coded pairs arrived at the responder as they were sent, one probe of each of which was left to prune; 0: too few, and all probes were."""
    pure_back: Count = 0
    """As `pure_forth`, of the way back."""
    least_ppb: Finite = -200_000.0
    """Least slope for which a fit sees what it would have seen unpruned; beyond, it sees the outermost points alone."""
    most_ppb: Finite = 200_000.0
    """Most slope of that kind."""


class StampBatch(msgspec.Struct, frozen=True, kw_only=True, dict=True, tag="stamps.v1"):
    """Both directions of the streams that a node initiates, pruned without loss to what can decide a fit."""

    node: Name
    """The initiator, who publishes both directions."""
    since_ns: Time
    """Start of what the batch covers, local time of the node's clock."""
    until_ns: Time
    """Its end, local time of the node's clock."""
    epoch_ns: Time
    """The node's CLOCK_REALTIME minus its local time: anchors the reference, and nothing else."""
    streams: Annotated[tuple[Stream, ...], msgspec.Meta(max_length=MOST_PATHS)]
    """What the column `stream` counts, from 0."""
    columns: Columns
    """One probe a row: see x-columns."""
    tolerated: Annotated[int, msgspec.Meta(ge=0, le=(1 << 16) - 1)] = 1
    """Convex layers kept: a fit that tolerates up to this many points a side sees what it would have seen unpruned."""
    utc_error_ns: Bound = -1
    """How far the node's CLOCK_REALTIME may be from UTC, as whoever disciplines it has told the kernel; -1: nobody does."""

    @classmethod
    def of(cls, rows: NDArray[Any], **header: Any) -> StampBatch:
        """A batch of these rows, of dtype `StampRow`."""
        return cls(columns=pack(rows), **header)

    def rows(self) -> NDArray[Any]:
        """The rows, of dtype `StampRow`.

        Raises:
            ValueError: the columns do not fit together, or a stream is another node's to speak of.
        """
        return rows_once(self, self._unpack)

    def _unpack(self) -> NDArray[Any]:
        # Many streams leave the same NIC.
        for source in {stream.path.partition(">")[0] for stream in self.streams}:
            if not starts_at(source, self.node):
                raise ValueError(f"{source[:_SHOWN]} is no NIC of {self.node}, at which streams begin")
        return _checked(self.columns, StampRow, ("transmit_ns", "receive_ns"), "stream", len(self.streams))

    def check(self) -> None:
        """Refuses a batch that contradicts itself.

        Raises:
            ValueError: as `rows`, or it covers no time, or a stream has one clock at both ends.
        """
        if self.until_ns <= self.since_ns:
            raise ValueError(f"a batch of {self.node} ends at {self.until_ns}, not after it began")
        for stream in self.streams:
            if stream.initiator == stream.responder:
                raise ValueError(f"a stream between {stream.initiator} and itself measures nothing")
        self.rows()


class HostLoad(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How busy a node's processors were, as its kernel counts it. Evidence for whoever reads an event: no verdict rests on it."""

    span_ns: Span
    """The time that it is of; it ends with the batch."""
    stolen: Share = 0.0
    """Of the processors' time, what the hypervisor gave to others (``steal`` in /proc/stat)."""
    waiting: Share = 0.0
    """Of the time, that in which some task waited for a processor (``some`` in /proc/pressure/cpu); 0 where the kernel does not count it."""
    squeezed: Count = 0
    """Times that the kernel put off received packets, as others wanted the processor (``time_squeeze`` in /proc/net/softnet_stat)."""
    dropped: Count = 0
    """Packets that found the kernel's queue of received ones full (``dropped`` there)."""


class DelayBatch(msgspec.Struct, frozen=True, kw_only=True, dict=True, tag="delay.v1"):
    """What one node saw of its paths in one interval."""

    node: Name
    """The witness."""
    at_ns: Time
    """End of the interval, reference time as the node knows it: when it last read its sockets dry, so that what the batch says of silence was true then."""
    interval_ns: Span
    """Its length."""
    bound_ns: Bound
    """The statistical bound of the node's own clock at `at_ns`; -1 while it is not synchronised."""
    paths: Annotated[tuple[LongName, ...], msgspec.Meta(max_length=MOST_PATHS)]
    """What the column `path` counts, from 0."""
    columns: Columns
    """One path a row: see x-columns."""
    late_ns: Span = 0
    """The most that a step of the node's probe came late since its last batch."""
    host: HostLoad | None = None
    """Once a second; null: not in this batch."""
    every_ns: Span = 0
    """The interval of the node's regular reports by its settings, which no stall makes longer and no silence shorter; 0: it does not say."""

    @classmethod
    def of(cls, rows: NDArray[Any], **header: Any) -> DelayBatch:
        """A batch of these rows, of dtype `DelayRow`."""
        return cls(columns=pack(rows), **header)

    def rows(self) -> NDArray[Any]:
        """The rows, of dtype `DelayRow`.

        Raises:
            ValueError: the columns do not fit together, or a row is another node's to speak of.
        """
        return rows_once(self, self._unpack)

    def _unpack(self) -> NDArray[Any]:
        bounded = ("least_ns", "median_ns", "p99_ns", "last_ns", "sequence")
        rows = _checked(self.columns, DelayRow, bounded, "path", len(self.paths), later=DELAY_LATER)
        sent_here = _ends.sent_here(self.node, self.paths)[rows["path"]]
        if np.any(sent_here != (rows["witness"] == Witness.SOURCE)):
            raise ValueError(f"{self.node} speaks for the other end of a path")
        return rows

    def check(self) -> None:
        """Refuses a batch that contradicts itself.

        Raises:
            ValueError: as `rows`.
        """
        self.rows()


class _Ends:
    """Which ends of paths a node is, of batches that came before: a node names the same paths in the same order most of the time."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, tuple[str, ...]], NDArray[np.bool_]] = {}
        self._names = 0

    def sent_here(self, node: str, paths: tuple[str, ...]) -> NDArray[np.bool_]:
        """Per path, whether the node is its sending end, not its receiving one.

        Raises:
            ValueError: it is neither.
        """
        known = self._known.get((node, paths))
        if known is None:
            for path in paths:
                if not starts_at(path, node) and not ends_at(path, node):
                    raise ValueError(f"{path[:_SHOWN]} neither begins nor ends at {node}")
            self._names += len(paths)
            if self._names > _MOST_REMEMBERED:
                self._known.clear()
                self._names = len(paths)
            known = self._known[node, paths] = np.array([starts_at(path, node) for path in paths], dtype=bool)
        return known


_ends = _Ends()


class PortChange(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a port was after a change of it, as `PortState` has it."""

    at_ns: Time
    """When the kernel's message was read, reference time."""
    carrier: bool
    """Whether a signal came through the cable."""
    admin_up: bool
    """Whether it was set up."""
    carrier_down_count: KernelCount
    """The kernel's count of lost carriers."""
    carrier_up_count: KernelCount
    """As `carrier_down_count`, of the returns."""
    index: KernelCount = 0
    """The kernel's index of the device; 0: not said."""


class PortState(msgspec.Struct, frozen=True, kw_only=True, tag="port.v1"):
    """A NIC's port: its link at once on change, its counters every second."""

    node: Name
    """The NIC's."""
    nic: LongName
    """Name of the NIC."""
    at_ns: Time
    """When the kernel's message was read, reference time."""
    carrier: bool
    """Whether a signal comes through the cable."""
    admin_up: bool
    """Whether it is set up; false: somebody set it down on purpose."""
    carrier_down_count: KernelCount
    """The kernel's count since the device was made; it finds the flaps that fell between two messages."""
    carrier_up_count: KernelCount
    """As `carrier_down_count`, of the returns."""
    index: KernelCount = 0
    """The kernel's index of the device. Another one is another device, made anew by its driver say, whose counts began at 0; 0: not said."""
    management: bool = False
    """The host's default route or its way to the bus leaves by it: not a port to be judged as one of the fabric's."""
    fault: Text = ""
    """Identity of the node's present boot; with the NIC and `carrier_down_count` it names the fault in every trace."""
    change: bool = False
    """Sent because the link changed, not because a second was over."""
    counters: Annotated[dict[Word, Integer], msgspec.Meta(max_length=256)] = {}
    """Kernel counters by the kernel's names: rx_packets, tx_bytes, rx_dropped, ...; of an RDMA device also link_downed, 8 bits that
    stay at 255."""
    changes: Annotated[tuple[PortChange, ...], msgspec.Meta(max_length=MOST_CHANGES)] = ()
    """The port's last changes before this word, oldest first, since the node's probe began. Who did not hear of one, as the bus was away, learns of it here."""

    def __post_init__(self) -> None:
        """A node speaks of its own NICs.

        Raises:
            ValueError: the NIC is another's.
        """
        if node_of(self.nic) != self.node:
            raise ValueError(f"{self.nic} is not a NIC of {self.node}")


def _checked(
    columns: Mapping[str, bytes],
    dtype: np.dtype[Any],
    bounded: tuple[str, ...],
    index: str,
    named: int,
    *,
    later: Collection[str] = (),
) -> NDArray[Any]:
    rows = unpack(columns, dtype, later)
    if len(rows):
        if int(rows[index].max()) >= named:
            raise ValueError(f"a row names a {index} that the batch does not have")
        every = np.frombuffer(b"".join([columns[name] for name in bounded if name in columns]), "<i8")
        # In wrapping arithmetic the sum is above 0 for exactly those that lie within the limits.
        if int((every + FAR_NS).min()) <= 0:
            raise ValueError("a row has a time further than 146 years from 0, or a sequence beyond 2^62")
    return rows
