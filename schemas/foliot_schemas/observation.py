"""The observations of probes: timestamps, delays, ports. There are many, and they may be lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import numpy as np

from foliot_schemas.bounds import (
    MOST_PATHS,
    Bound,
    Count,
    Finite,
    Integer,
    KernelCount,
    LeapSecond,
    LongName,
    Name,
    Rate,
    Share,
    Span,
    TaiOffset,
    Text,
    Time,
    Word,
)
from foliot_schemas.columns import check_columns, pack, rows_once, unpack_checked
from foliot_schemas.names import ends_at, node_of, starts_at

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

Columns = Annotated[dict[Word, bytes], msgspec.Meta(max_length=64)]

_MOST_REMEMBERED = 1 << 20
"""Names of paths in the batches remembered: some 80 MB, in a fleet with that many paths."""
_SHOWN = 256
MOST_CHANGES = 64
"""Changes of one port in a message: 32 losses and returns, some 7 KB. If there are more, the kernel's counters stand
for the oldest."""

StampKind = Literal["hardware", "kernel", "user"]

StampRow = np.dtype([("stream", "<u2"), ("direction", "u1"), ("transmit_ns", "<i8"), ("receive_ns", "<i8")])
"""One probe. `stream` indexes the batch's streams. `direction` is 0 from initiator to responder, 1 back. Stamps are
local times, each of the clock that took it."""
_STAMPS = ("transmit_ns", "receive_ns")

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
        ("unsent", "<u2"),
    ]
)
"""One path in one interval. `path` indexes the batch's paths. `witness` is the reporting end, see `Witness`. 0: the
source. 1: the destination. 2: the destination as the path fell silent. 3: the destination as the path speaks again.

A path that takes the same links as another one may idle: it has a probe each half minute, the other one stands for it,
and it has no row but where a probe was heard.

One-way delays are those of the probes received; 0: none was received. `last_ns` is when the witness last sent on
(source) or heard (destination) the path, reference time; 0: never. `sequence` is the number of the probe sent last
(source) or of the highest heard (destination); 0: not said. It rises over restarts of the sender.

`full_sent` and `full_received` are the parts of the destination's counts that were padded to full size. `full_bytes` is
that size, as an IP packet on the path; 0: none are sent. `unsent` is the source's count of probes that never left its
host though later ones did: the queue of its own NIC was full. The destination misses them like lost ones.

Where a path fell silent, `least_ns` is how long after `last_ns` its sender is known to have sent again on other paths,
when a further probe of this one was due: by its kernel's stamps, which probes carry. 0: that is not known."""

DelayCount = np.dtype([("path", "<u2"), ("bucket", "u1"), ("probes", "u1")])
"""Delays of one path in one interval that are alike. `path` indexes the batch's paths. `probes` counts them. `bucket` 0
has those below 1 µs. Bucket n has those from 2^((n-1)/12) µs on and below 2^(n/12) µs, and 255 has all above."""

DELAY_LATER = frozenset({"sequence", "full_sent", "full_received", "full_bytes", "unsent"})
"""Columns of `DelayRow` that were added after delay.v1 was first published. They are 0 where the sender lacks them."""


class Witness:
    """The reporting end of a path: values of the column `witness`."""

    SOURCE = 0
    """The sending end: `sent` counts, `received` is 0."""
    DESTINATION = 1
    """The receiving end: `received` counts. `sent` is the number of probes that the sequence numbers heard prove to
    have been sent."""
    FELL_SILENT = 2
    """The receiving end, at once: nothing was heard for the path's silence time."""
    SPEAKS_AGAIN = 3
    """The receiving end, at once: a silent path was heard again."""


class Stream(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A sequence of probes both ways between two NICs with one entropy, and the clocks that stamp them.

    Or readings of the clock in a NIC between two of its host's, which bound it from both sides as probes do. Their path
    goes from the NIC to itself (``node3.rail0>node3.rail0#0``).
    """

    path: LongName
    """From initiator to responder."""
    initiator: Name
    """The initiator's clock."""
    responder: Name
    """The responder's clock."""
    kind: StampKind
    """The worse of the two ends' kinds of stamp."""
    pure_forth: Count = 0
    """The number of coded pairs that arrived at the responder as they were sent. Pruning kept one probe of each. 0:
    there were too few, and pruning kept all probes."""
    pure_back: Count = 0
    """As `pure_forth`, of the way back."""
    near_forth: Count = 0
    """The number of probes to the responder that came near their quickest one, before pruning: within a width that both
    directions share. 0: nobody counted."""
    near_back: Count = 0
    """As `near_forth`, of the way back."""
    least_ppb: Finite = -200_000.0
    """The least slope for which a fit has the same result as without pruning. Below it, a fit sees the outermost
    points alone."""
    most_ppb: Finite = 200_000.0
    """The greatest slope of that kind."""


class StampBatch(msgspec.Struct, frozen=True, kw_only=True, dict=True, tag="stamps.v1"):
    """Both directions of the streams that a node initiates, pruned without loss to the probes that can decide a fit."""

    node: Name
    """The initiator, which publishes both directions."""
    since_ns: Time
    """Start of the time that the batch covers, local time of the node's clock."""
    until_ns: Time
    """Its end, local time of the node's clock."""
    epoch_ns: Time
    """The node's CLOCK_REALTIME minus its local time. It anchors the reference, and has no other use."""
    streams: Annotated[tuple[Stream, ...], msgspec.Meta(max_length=MOST_PATHS)]
    """The streams that the column `stream` indexes, from 0."""
    columns: Columns
    """One probe a row: see x-columns."""
    tolerated: Annotated[int, msgspec.Meta(ge=0, le=(1 << 16) - 1)] = 1
    """Convex layers kept. A fit that tolerates up to this many points on a side has the same result as without
    pruning."""
    utc_error_ns: Bound = -1
    """The greatest error of the node's CLOCK_REALTIME against UTC, as the service that disciplines it has told the
    kernel; -1: none does."""
    tai_offset_s: TaiOffset = 0
    """How far UTC is behind TAI, as the node's kernel has it; 0: it does not know."""
    leap_s: LeapSecond | None = None
    """The leap second that the node's kernel announces for the end of the UTC day: 1 is inserted, -1 is deleted, 0:
    there is none; no value: it does not know."""
    leap_utc_ns: Time = 0
    """UTC at which that leap second begins: midnight if one is inserted, a second before midnight if one is deleted."""
    monotonic_ns: Time = 0
    """The node's CLOCK_MONOTONIC minus its local time at `until_ns`, if its TCP stamps packets by it alone. 0: it does
    not, or the node does not say."""
    monotonic_ppb: Rate = 0.0
    """By how much CLOCK_MONOTONIC runs faster than local time."""

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
        self._check_sources()
        return unpack_checked(self.columns, StampRow, _STAMPS, "stream", len(self.streams))

    def check_rows(self) -> None:
        """Refuses rows that `rows` would refuse, once, and makes none: sync reads the columns as they are.

        Raises:
            ValueError: as `rows`.
        """
        if not self.__dict__.get("rows_are_sound"):
            self._check_sources()
            check_columns(self.columns, StampRow, _STAMPS, "stream", len(self.streams))
            self.__dict__["rows_are_sound"] = True

    def _check_sources(self) -> None:
        # Many streams leave the same NIC.
        for source in {stream.path.partition(">")[0] for stream in self.streams}:
            if not starts_at(source, self.node):
                raise ValueError(f"{source[:_SHOWN]} is no NIC of {self.node}, at which streams begin")

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
        self.check_rows()


class HostLoad(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The load of a node's processors, as its kernel counts it.

    It is evidence for readers of an event: no verdict rests on it.
    """

    span_ns: Span
    """The time that it covers, which ends with the batch."""
    stolen: Share = 0.0
    """Share of the processors' time that the hypervisor gave to others (``steal`` in /proc/stat)."""
    waiting: Share = 0.0
    """Share of the time in which some task waited for a processor (``some`` in /proc/pressure/cpu); 0 if the kernel
    does not count it."""
    squeezed: Count = 0
    """Times that the kernel put off received packets, because others wanted the processor (``time_squeeze`` in
    /proc/net/softnet_stat)."""
    dropped: Count = 0
    """Packets that the kernel dropped because its queue of received ones was full (``dropped`` there)."""


class DelayBatch(msgspec.Struct, frozen=True, kw_only=True, dict=True, tag="delay.v1"):
    """One node's view of its paths in one interval."""

    node: Name
    """The witness."""
    at_ns: Time
    """End of the interval, reference time as the node knows it. It is when the node last emptied its sockets, so
    every silence in the batch was true then."""
    interval_ns: Span
    """Length of the interval."""
    bound_ns: Bound
    """The statistical bound of the node's own clock at `at_ns`; -1 while it is not synchronised."""
    paths: Annotated[tuple[LongName, ...], msgspec.Meta(max_length=MOST_PATHS)]
    """The paths that the column `path` indexes, from 0."""
    columns: Columns
    """One path a row: see x-columns."""
    late_ns: Span = 0
    """The greatest lateness of a step of the node's probe since its last batch."""
    host: HostLoad | None = None
    """Once a second; null: not in this batch."""
    every_ns: Span = 0
    """The interval of the node's regular reports by its settings. No stall makes it longer and no silence makes it
    shorter. 0: it does not say."""
    histogram: Columns | None = None
    """All one-way delays that became known in the interval, counted by path and bucket: see x-histogram. No value: the
    node does not say."""

    @classmethod
    def of(cls, rows: NDArray[Any], histogram: NDArray[Any] | None = None, **header: Any) -> DelayBatch:
        """A batch of these rows, of dtype `DelayRow`, and with these counts, of dtype `DelayCount`."""
        return cls(columns=pack(rows), histogram=None if histogram is None else pack(histogram), **header)

    def rows(self) -> NDArray[Any]:
        """The rows, of dtype `DelayRow`.

        Raises:
            ValueError: the columns do not fit together, or a row is another node's to speak of.
        """
        return rows_once(self, self._unpack)

    def _unpack(self) -> NDArray[Any]:
        bounded = ("least_ns", "median_ns", "p99_ns", "last_ns", "sequence")
        rows = unpack_checked(self.columns, DelayRow, bounded, "path", len(self.paths), later=DELAY_LATER)
        if (self._sent_here()[rows["path"]] != (rows["witness"] == Witness.SOURCE)).any():
            raise ValueError(f"{self.node} speaks for the other end of a path")
        return rows

    def delay_counts(self) -> NDArray[Any] | None:
        """The histogram's rows, of dtype `DelayCount`; None: the node does not say.

        Raises:
            ValueError: as `rows`.
        """
        columns = self.histogram
        return None if columns is None else rows_once(self, lambda: self._unpack_histogram(columns), "unpacked_counts")

    def _unpack_histogram(self, columns: Mapping[str, bytes]) -> NDArray[Any]:
        rows = unpack_checked(columns, DelayCount, (), "path", len(self.paths))
        if self._sent_here()[rows["path"]].any():
            raise ValueError(f"{self.node} counts delays at the other end of a path")
        return rows

    def _sent_here(self) -> NDArray[np.bool_]:
        """Per path, whether the node is the sending end."""
        return rows_once(self, lambda: _ends.sent_here(self.node, self.paths), "sent_here")

    def check(self) -> None:
        """Refuses a batch that contradicts itself.

        Raises:
            ValueError: as `rows`.
        """
        self.rows()
        self.delay_counts()


class _Ends:
    """The ends at which a node is, of the paths of earlier batches.

    A node mostly names the same paths in the same order.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, tuple[str, ...]], NDArray[np.bool_]] = {}
        self._names = 0

    def sent_here(self, node: str, paths: tuple[str, ...]) -> NDArray[np.bool_]:
        """Per path, whether the node is the sending end; otherwise it is the receiving end.

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
    """The state of a port after a change, as `PortState` has it."""

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
    """Whether the port is set up; false: somebody set it down on purpose."""
    carrier_down_count: KernelCount
    """The kernel's count since the device was made. It shows flaps that fell between two messages."""
    carrier_up_count: KernelCount
    """As `carrier_down_count`, of the returns."""
    index: KernelCount = 0
    """The kernel's index of the device; 0: not said. A new index is a new device, which a driver made for example.
    Its counts began at 0."""
    management: bool = False
    """The host's default route or its way to the bus leaves by it. Services do not judge it as a port of the fabric."""
    fault: Text = ""
    """Identity of the node's present boot. With the NIC and `carrier_down_count` it names the fault in every trace."""
    change: bool = False
    """Sent because the link changed, not because a second was over."""
    counters: Annotated[dict[Word, Integer], msgspec.Meta(max_length=256)] = {}
    """Kernel counters by the kernel's names: rx_packets, tx_bytes, rx_dropped, ... An RDMA device also has
    link_downed, an 8-bit count that stays at 255."""
    changes: Annotated[tuple[PortChange, ...], msgspec.Meta(max_length=MOST_CHANGES)] = ()
    """The port's last changes before this message, oldest first, since the node's probe began. A reader that missed
    one, while the bus was away, learns of it here."""

    def __post_init__(self) -> None:
        """Refuses a report about another node's NIC.

        Raises:
            ValueError: the NIC is another's.
        """
        if node_of(self.nic) != self.node:
            raise ValueError(f"{self.nic} is not a NIC of {self.node}")
