"""What the kernel says of the traffic between two service addresses. There is much of it, and it may be lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np

from foliot_schemas.bounds import LongName, Name, Span, Time, Word  # noqa: TC001 - msgspec reads them
from foliot_schemas.columns import pack, rows_once, unpack_checked
from foliot_schemas.names import parse_flow, starts_at

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_FLOWS = 1 << 12
"""Flows in a batch: a node of 64 rails that sends to as many."""
_SHOWN = 256

FlowRow = np.dtype(
    [
        ("flow", "<u2"),
        ("connections", "<u2"),
        ("retransmitted", "<u4"),
        ("acked_bytes", "<i8"),
        ("busy_ns", "<i8"),
        ("receiver_limited_ns", "<i8"),
        ("buffer_limited_ns", "<i8"),
        ("rtt_ns", "<i8"),
        ("least_rtt_ns", "<i8"),
    ]
)
"""One flow in one interval. `flow` indexes the batch's flows. `connections` counts its TCP connections.

`acked_bytes` is what the receiver acknowledged, and `retransmitted` the segments sent again, of all connections together.
The other columns are of the connection that was busy for longest. `busy_ns` is how long it had data on its way.
Of that time, it waited for the receiver's window (`receiver_limited_ns`) or for its own send buffer
(`buffer_limited_ns`). For the rest of the interval, the application gave it nothing to send. `rtt_ns` is its smoothed
round-trip time now, and `least_rtt_ns` the least that it has seen; 0: none was measured."""


class FlowBatch(msgspec.Struct, frozen=True, kw_only=True, dict=True, tag="flow.v1"):
    """The TCP traffic that left a node by its service addresses in one interval."""

    node: Name
    """The sender."""
    at_ns: Time
    """End of the interval, reference time as the node knows it."""
    interval_ns: Span
    """Length of the interval."""
    flows: Annotated[tuple[LongName, ...], msgspec.Meta(max_length=MOST_FLOWS)]
    """The flows that the column `flow` indexes, from 0, as in ``node0.rail0>node3.rail0``. The names are those of the
    NICs whose service addresses the traffic has, whichever way it goes."""
    columns: Annotated[dict[Word, bytes], msgspec.Meta(max_length=64)]
    """One flow a row: see x-columns."""

    @classmethod
    def of(cls, rows: NDArray[Any], **header: Any) -> FlowBatch:
        """A batch of these rows, of dtype `FlowRow`."""
        return cls(columns=pack(rows), **header)

    def rows(self) -> NDArray[Any]:
        """The rows, of dtype `FlowRow`.

        Raises:
            ValueError: the columns do not fit together, or a flow is another node's to speak of.
        """
        return rows_once(self, self._unpack)

    def _unpack(self) -> NDArray[Any]:
        for flow in self.flows:
            if not starts_at(flow, self.node):
                raise ValueError(f"{flow[:_SHOWN]} does not begin at {self.node}")
            parse_flow(flow)
        counted = ("acked_bytes", "busy_ns", "receiver_limited_ns", "buffer_limited_ns", "rtt_ns", "least_rtt_ns")
        rows = unpack_checked(self.columns, FlowRow, counted, "flow", len(self.flows))
        for name in counted:
            if len(rows) and int(rows[name].min()) < 0:
                raise ValueError(f"a flow has a negative {name}")
        return rows

    def check(self) -> None:
        """Refuses a batch that contradicts itself.

        Raises:
            ValueError: as `rows`.
        """
        self.rows()
