"""Which routers paths cross. A node tells of its own when it finds them, and again every half minute."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np

from foliot_schemas.bounds import MOST_PATHS, LongName, Name, Time, Word
from foliot_schemas.columns import pack, rows_once, unpack_checked
from foliot_schemas.names import parse_path, starts_at

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_HOPS = 16
_SHOWN = 256

HopRow = np.dtype([("path", "<u2"), ("hop", "u1"), ("address", "<u4")])
"""A router of a path. `path` indexes the batch's paths. `hop` counts routers from the source's NIC on, from 1.
`address` is the IPv4 address with which the router answered, as a number; mostly that of the port by which the path
enters it. Hops without a row did not answer."""


class HopBatch(msgspec.Struct, frozen=True, kw_only=True, dict=True, tag="hops.v1"):
    """The routers of some of a node's paths. Each path is told whole; one without rows has no router that answers."""

    node: Name
    """Where the paths begin."""
    at_ns: Time
    """When it was told, reference time as the node knows it."""
    paths: Annotated[tuple[LongName, ...], msgspec.Meta(max_length=MOST_PATHS)]
    """The paths that the column `path` indexes, from 0."""
    columns: Annotated[dict[Word, bytes], msgspec.Meta(max_length=64)]
    """One hop a row: see x-columns."""
    allows_idle: bool = False
    """The node's probe knows that paths to it may idle, and reports no silence of these. Those of before do not."""

    @classmethod
    def of(cls, rows: NDArray[Any], **header: Any) -> HopBatch:
        """A batch of these rows, of dtype `HopRow`."""
        return cls(columns=pack(rows), **header)

    def rows(self) -> NDArray[Any]:
        """The rows, of dtype `HopRow`.

        Raises:
            ValueError: the columns do not fit together, or a path is another node's to speak of.
        """
        return rows_once(self, self._unpack)

    def _unpack(self) -> NDArray[Any]:
        for path in self.paths:
            parse_path(path)
            if not starts_at(path, self.node):
                raise ValueError(f"{path[:_SHOWN]} does not begin at {self.node}")
        rows = unpack_checked(self.columns, HopRow, (), "path", len(self.paths))
        if len(rows) and not (int(rows["hop"].min()) >= 1 and int(rows["hop"].max()) <= MOST_HOPS):
            raise ValueError(f"a path has a hop beyond {MOST_HOPS}, or none")
        if len(np.unique(rows[["path", "hop"]])) != len(rows):
            raise ValueError("a path has two routers for one hop")
        return rows

    def check(self) -> None:
        """Refuses a batch that contradicts itself.

        Raises:
            ValueError: as `rows`.
        """
        self.rows()
