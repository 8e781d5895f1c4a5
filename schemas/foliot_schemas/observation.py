"""The observations of probes: timestamps, delays, ports. There are many, and they may be lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import msgspec
import numpy as np
from msgspec.structs import force_setattr

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
from foliot_schemas.columns import check_columns, pack, rows_once, unpack, unpack_checked
from foliot_schemas.names import ends_at, node_of, starts_at

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

Columns = Annotated[dict[Word, bytes], msgspec.Meta(max_length=64)]

_MOST_REMEMBERED = 1 << 20
"""Names of paths in the batches remembered: some 80 MB, in a fleet with that many paths."""
_MOST_CHARACTERS = 1 << 25
"""Characters in the lists of streams remembered: some 100 MB, for a million paths."""
_SHOWN = 256
MOST_CHANGES = 64
"""Changes of one port in a message: 32 losses and returns, some 7 KB. If there are more, the kernel's counters stand
for the oldest."""

StampKind = Literal["hardware", "kernel", "user"]
STAMP_KINDS: tuple[StampKind, ...] = get_args(StampKind)

StampRow = np.dtype([("stream", "<u2"), ("direction", "u1"), ("transmit_ns", "<i8"), ("receive_ns", "<i8")])
"""One probe. `stream` indexes the batch's streams. `direction` is 0 from initiator to responder, 1 back. Stamps are
local times, each of the clock of the host that took it."""
_STAMPS = ("transmit_ns", "receive_ns")

StreamRow = np.dtype(
    [
        ("initiator", "<u2"),
        ("responder", "<u2"),
        ("kind", "u1"),
        ("pure_forth", "<u4"),
        ("pure_back", "<u4"),
        ("near_forth", "<u4"),
        ("near_back", "<u4"),
        ("least_ppb", "<f8"),
        ("most_ppb", "<f8"),
    ]
)
"""One stream, in the order of the batch's paths. `initiator` and `responder` index the batch's clocks, which stamp its
two ends. `kind` is the worse of the two ends' kinds of stamp. 0: hardware. 1: kernel. 2: user.

`pure_forth` counts the coded pairs that arrived at the responder as they were sent. Pruning kept one probe of each.
0: there were too few, and pruning kept all probes. `pure_back` counts those of the way back.

`near_forth` counts the probes to the responder that came near their quickest one, before pruning: within a width that
both directions share. 0: nobody counted. `near_back` counts those of the way back.

A fit has the same result as without pruning for slopes from `least_ppb` to `most_ppb`. Beyond, it sees the outermost
points alone."""
_LASTING = ("initiator", "responder", "kind")
"""Columns of `StreamRow` that mostly stay the same from batch to batch."""
_MOST_COUNTED = (1 << 32) - 1

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

    `StreamRow` says what the numbers mean.
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
    """As in x-described."""
    pure_back: Count = 0
    """As in x-described."""
    near_forth: Count = 0
    """As in x-described."""
    near_back: Count = 0
    """As in x-described."""
    least_ppb: Finite = -200_000.0
    """As in x-described."""
    most_ppb: Finite = 200_000.0
    """As in x-described."""


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
    columns: Columns
    """One probe a row: see x-columns."""
    paths: Annotated[tuple[LongName, ...], msgspec.Meta(max_length=MOST_PATHS)] = ()
    """The path of each stream, from initiator to responder. The column `stream` indexes them, from 0."""
    clocks: Annotated[tuple[Name, ...], msgspec.Meta(max_length=MOST_PATHS)] = ()
    """The clocks that stamp them, which the columns `initiator` and `responder` index, from 0."""
    described: Columns = {}
    """What else there is to say of the streams, one a row: see x-described."""
    streams: Annotated[tuple[Stream, ...], msgspec.Meta(max_length=MOST_PATHS)] = ()
    """The streams as senders of before describe them, in place of `paths`, `clocks` and `described`. Empty here, for
    whatever was given is taken over into those."""
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

    def __post_init__(self) -> None:
        """Takes over the streams of a sender of before.

        Raises:
            ValueError: they have too many clocks.
        """
        if self.streams or not (self.paths or self.described):
            for name, value in zip(("paths", "clocks", "described"), _described(self.streams), strict=True):
                force_setattr(self, name, value)
            force_setattr(self, "streams", ())

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
        self.stream_list()
        return unpack_checked(self.columns, StampRow, _STAMPS, "stream", len(self.paths))

    def stream_list(self) -> StreamList:
        """The streams, but for what changes from window to window.

        Batches with equal lists have the same object, so that what is known of a list need not be found again.

        Raises:
            ValueError: as `rows`.
        """
        listed: StreamList | None = self.__dict__.get("listed")
        if listed is None:
            listed = _stream_lists.of(self.node, self.paths, self.clocks, self.described)
            self._check_numbers()
            self.__dict__["listed"] = listed
        return listed

    def _check_numbers(self) -> None:
        for name, size in _SIZES.items():
            column = self.described.get(name)
            if column is None or len(column) != size * len(self.paths):
                raise ValueError(f"{len(self.paths)} paths do not have as many values of {name!r}")
        slopes = np.frombuffer(self.described["least_ppb"] + self.described["most_ppb"], "<f8")
        if not np.logical_and.reduce(np.isfinite(slopes)):
            raise ValueError("the slope of a stream is not finite")

    def stream_rows(self) -> NDArray[Any]:
        """What is said of the streams, of dtype `StreamRow`.

        Raises:
            ValueError: as `rows`.
        """
        self.stream_list()
        return rows_once(self, lambda: unpack(self.described, StreamRow), "unpacked_streams")

    def each_stream(self) -> tuple[Stream, ...]:
        """The streams one by one, for a reader that has time.

        Raises:
            ValueError: as `rows`.
        """
        return tuple(
            Stream(path=path, initiator=self.clocks[initiator], responder=self.clocks[responder],
                   kind=STAMP_KINDS[kind], **dict(zip(_NUMBERS, numbers, strict=True)))
            for path, (initiator, responder, kind, *numbers) in zip(self.paths, self.stream_rows().tolist(), strict=True)
        )  # fmt: skip

    def check_rows(self) -> None:
        """Refuses rows that `rows` would refuse, once, and makes none: sync reads the columns as they are.

        Raises:
            ValueError: as `rows`.
        """
        if not self.__dict__.get("rows_are_sound"):
            self.stream_list()
            check_columns(self.columns, StampRow, _STAMPS, "stream", len(self.paths))
            self.__dict__["rows_are_sound"] = True

    def check(self) -> None:
        """Refuses a batch that contradicts itself.

        Raises:
            ValueError: as `rows`, or it covers no time, or a stream has one clock at both ends.
        """
        if self.until_ns <= self.since_ns:
            raise ValueError(f"a batch of {self.node} ends at {self.until_ns}, not after it began")
        self.check_rows()


_NUMBERS = tuple(name for name in StreamRow.names or () if name not in _LASTING)
"""Columns of `StreamRow` that are fields of `Stream`, too."""
_SIZES = {name: StreamRow[name].itemsize for name in _NUMBERS}


def _described(streams: tuple[Stream, ...]) -> tuple[tuple[str, ...], tuple[str, ...], dict[str, bytes]]:
    """Streams as the fields `paths`, `clocks` and `described` of a batch."""
    clocks: dict[str, int] = {}
    rows = np.zeros(len(streams), StreamRow)
    for end in ("initiator", "responder"):
        numbers = [clocks.setdefault(getattr(stream, end), len(clocks)) for stream in streams]
        if len(clocks) > MOST_PATHS:
            raise ValueError(f"{len(clocks)} clocks are more than a batch can have")
        rows[end] = numbers
    rows["kind"] = [STAMP_KINDS.index(stream.kind) for stream in streams]
    for name in _NUMBERS:
        values = [getattr(stream, name) for stream in streams]
        rows[name] = values if name.endswith("_ppb") else [min(count, _MOST_COUNTED) for count in values]
    return tuple(stream.path for stream in streams), tuple(clocks), pack(rows)


class StreamList:
    """The streams of a batch, but for what changes from window to window; they make sense.

    `ends` has the names of the initiator's and the responder's clock of each path.
    """

    __slots__ = ("ends", "paths")

    def __init__(self, paths: tuple[str, ...], ends: tuple[tuple[str, str], ...]) -> None:
        self.paths, self.ends = paths, ends


class _StreamLists:
    """The lists of streams of earlier batches.

    A node mostly has the same streams in the same order.
    """

    def __init__(self) -> None:
        self._known: dict[Any, StreamList] = {}
        self._characters = 0

    def of(
        self, node: str, paths: tuple[str, ...], clocks: tuple[str, ...], described: Mapping[str, bytes]
    ) -> StreamList:
        """The list of a batch with these fields.

        Raises:
            ValueError: a stream begins at another node's NIC, has a clock or a kind that there is not, or has one clock
                at both ends; or a column is missing, or has another length.
        """
        key = node, paths, clocks, described.get("initiator"), described.get("responder"), described.get("kind")
        known = self._known.get(key)
        if known is None:
            known = _checked_list(node, paths, clocks, described)
            self._characters += sum(map(len, paths))
            if self._characters > _MOST_CHARACTERS:
                self._known.clear()
                self._characters = sum(map(len, paths))
            self._known[key] = known
        return known


_stream_lists = _StreamLists()


def _checked_list(
    node: str, paths: tuple[str, ...], clocks: tuple[str, ...], described: Mapping[str, bytes]
) -> StreamList:
    rows = unpack(described, StreamRow)
    if len(rows) != len(paths):
        raise ValueError(f"{len(paths)} paths, and columns that describe {len(rows)} streams")
    for source in {path.partition(">")[0] for path in paths}:  # many streams leave the same NIC
        if not starts_at(source, node):
            raise ValueError(f"{source[:_SHOWN]} is no NIC of {node}, at which streams begin")
    if len(rows) and max(rows["initiator"].max(), rows["responder"].max()) >= len(clocks):
        raise ValueError("a stream names a clock that the batch does not have")
    if rows["kind"].max(initial=0) >= len(STAMP_KINDS):
        raise ValueError("a stream has a kind of stamp that there is not")
    numbers = zip(rows["initiator"].tolist(), rows["responder"].tolist(), strict=True)
    ends = tuple((clocks[initiator], clocks[responder]) for initiator, responder in numbers)
    for initiator, responder in ends:
        if initiator == responder:
            raise ValueError(f"a stream between {initiator} and itself measures nothing")
    return StreamList(paths, ends)


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
