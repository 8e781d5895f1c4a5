"""What probes see: timestamps, delays, ports. Many, and may be lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np

from foliot_schemas.columns import pack, unpack

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
    ]
)
"""One path in one interval. `path` indexes the batch's paths; `witness` is a `Witness`; one-way delays are of the
probes received (0 where none was), `last_ns` is when the witness last sent on (source) or heard (destination) the
path (0: never)."""


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


class Stream(msgspec.Struct, frozen=True, kw_only=True):
    """A sequence of probes both ways between two NICs with one entropy, and the clocks that stamp them."""

    path: str
    """From initiator to responder."""
    initiator: str
    """The initiator's clock."""
    responder: str
    """The responder's clock."""
    kind: StampKind
    """The worse of the two ends' kinds of stamp."""


class StampBatch(msgspec.Struct, frozen=True, kw_only=True, tag="stamps.v1"):
    """Both directions of the streams that a node initiates, pruned without loss to what can decide a fit."""

    node: str
    since_ns: int
    """Start of what the batch covers, local time of the node's clock."""
    until_ns: int
    epoch_ns: int
    """The node's CLOCK_REALTIME minus its local time: anchors the reference, and nothing else."""
    streams: tuple[Stream, ...]
    columns: dict[str, bytes]
    tolerated: int = 1
    """Convex layers kept: a fit that tolerates up to this many points a side sees what it would have seen unpruned."""

    @classmethod
    def of(cls, rows: NDArray[Any], **header: Any) -> StampBatch:
        """A batch of these rows, of dtype `StampRow`."""
        return cls(columns=pack(rows), **header)

    def rows(self) -> NDArray[Any]:
        """The rows, of dtype `StampRow`.

        Raises:
            ValueError: the columns do not fit together.
        """
        rows = unpack(self.columns, StampRow)
        if len(rows) and int(rows["stream"].max()) >= len(self.streams):
            raise ValueError("a row names a stream that the batch does not have")
        return rows


class DelayBatch(msgspec.Struct, frozen=True, kw_only=True, tag="delay.v1"):
    """What one node saw of its paths in one interval."""

    node: str
    at_ns: int
    """End of the interval, reference time as the node knows it."""
    interval_ns: int
    bound_ns: int
    """The statistical bound of the node's own clock at `at_ns`; -1 while it is not synchronised."""
    paths: tuple[str, ...]
    columns: dict[str, bytes]

    @classmethod
    def of(cls, rows: NDArray[Any], **header: Any) -> DelayBatch:
        """A batch of these rows, of dtype `DelayRow`."""
        return cls(columns=pack(rows), **header)

    def rows(self) -> NDArray[Any]:
        """The rows, of dtype `DelayRow`.

        Raises:
            ValueError: the columns do not fit together.
        """
        rows = unpack(self.columns, DelayRow)
        if len(rows) and int(rows["path"].max()) >= len(self.paths):
            raise ValueError("a row names a path that the batch does not have")
        return rows


class PortState(msgspec.Struct, frozen=True, kw_only=True, tag="port.v1"):
    """A NIC's port: its link at once on change, its counters every second."""

    node: str
    nic: str
    at_ns: int
    """When the kernel's message was read."""
    carrier: bool
    admin_up: bool
    carrier_down_count: int
    """The kernel's count since the device was made; it finds the flaps that fell between two messages."""
    carrier_up_count: int
    fault: str = ""
    """Identity of the node's present boot; with the NIC and `carrier_down_count` it names the fault in every trace."""
    change: bool = False
    """Sent because the link changed, not because a second was over."""
    counters: dict[str, int] = {}
    """Kernel counters by the kernel's names: rx_packets, tx_bytes, rx_dropped, ..."""
