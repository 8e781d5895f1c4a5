"""What the kernel says of the traffic between two service addresses. There is much of it, and it may be lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np

from foliot_schemas.bounds import LongName, Name, Span, Time, Word
from foliot_schemas.columns import pack, rows_once, unpack_checked
from foliot_schemas.names import parse_flow, starts_at

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

MOST_FLOWS = 1 << 12
"""Flows in a batch: a node of 64 rails that sends to as many."""
_SHOWN = 256
_COUNTED = (
    "acked_bytes", "busy_ns", "receiver_limited_ns", "buffer_limited_ns", "rtt_ns", "least_rtt_ns",
    "busiest_acked_bytes",
)  # fmt: skip
"""Columns that are never negative."""

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
        ("busiest_acked_bytes", "<i8"),
        ("in_band_ns", "<i8"),
    ]
)
"""One flow in one interval. `flow` indexes the batch's flows. `connections` counts its TCP connections.

`acked_bytes` is what the receiver acknowledged, and `retransmitted` the segments sent again, of all connections together.
The other columns are of the connection that was busy for longest. `busy_ns` is how long it had data on its way.
Of that time, it waited for the receiver's window (`receiver_limited_ns`) or for its own send buffer
(`buffer_limited_ns`). For the rest of the interval, the application gave it nothing to send. `rtt_ns` is its smoothed
round-trip time now, and `least_rtt_ns` the least that it has seen; 0: none was measured. `busiest_acked_bytes` is what was
acknowledged of that connection alone. `in_band_ns` is how long data took to the receiver until that acknowledged it, by
the stamps of TCP: the median of a sample of acknowledgements of all connections. Clocks that are off make it wrong, and
even negative. 0: nobody knows."""
FLOW_LATER = frozenset({"busiest_acked_bytes", "in_band_ns"})
"""Columns of `FlowRow` that were added after flow.v1 was first published. They are 0 where the sender lacks them."""


_Columns = Annotated[dict[Word, bytes], msgspec.Meta(max_length=64)]
_Flows = Annotated[tuple[LongName, ...], msgspec.Meta(max_length=MOST_FLOWS)]


class FlowBatch(msgspec.Struct, frozen=True, kw_only=True, dict=True, tag="flow.v1"):
    """The TCP traffic that left a node in one interval: by its service addresses, and by its NICs' own."""

    node: Name
    """The sender."""
    at_ns: Time
    """End of the interval, reference time as the node knows it."""
    interval_ns: Span
    """Length of the interval."""
    flows: _Flows
    """The flows that the column `flow` indexes, from 0, as in ``node0.rail0>node3.rail0``. The names are those of the
    NICs whose service addresses the traffic has, whichever way it goes."""
    columns: _Columns
    """One flow a row: see x-columns."""
    nic_flows: _Flows = ()
    """As `flows`, of the traffic between the NICs' own addresses, whose way nobody chooses."""
    nic_columns: _Columns = {}
    """As `columns`, of `nic_flows`; empty: there is none, or the node does not say."""

    @classmethod
    def of(cls, rows: NDArray[Any], nic_rows: NDArray[Any] | None = None, **header: Any) -> FlowBatch:
        """A batch of these rows between service addresses, and of these between NICs; both of dtype `FlowRow`."""
        return cls(columns=pack(rows), nic_columns={} if nic_rows is None else pack(nic_rows), **header)

    def rows(self) -> NDArray[Any]:
        """The rows, of dtype `FlowRow`.

        Raises:
            ValueError: the columns do not fit together, or a flow is another node's to speak of.
        """
        return rows_once(self, lambda: _unpacked(self.node, self.flows, self.columns))

    def nic_rows(self) -> NDArray[Any]:
        """As `rows`, of the traffic between NICs.

        Raises:
            ValueError: as `rows`.
        """
        columns = self.nic_columns or pack(np.zeros(0, FlowRow))
        return rows_once(self, lambda: _unpacked(self.node, self.nic_flows, columns), "nic_unpacked")

    def check(self) -> None:
        """Refuses a batch that contradicts itself.

        Raises:
            ValueError: as `rows`.
        """
        self.rows()
        self.nic_rows()


def _unpacked(node: str, flows: Sequence[str], columns: Mapping[str, bytes]) -> NDArray[Any]:
    for flow in flows:
        if not starts_at(flow, node):
            raise ValueError(f"{flow[:_SHOWN]} does not begin at {node}")
        parse_flow(flow)
    rows = unpack_checked(columns, FlowRow, _COUNTED, "flow", len(flows), later=FLOW_LATER)
    for name in _COUNTED:
        if len(rows) and int(rows[name].min()) < 0:
            raise ValueError(f"a flow has a negative {name}")
    return rows
