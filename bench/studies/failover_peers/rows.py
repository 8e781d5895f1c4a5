"""The report on the peers: a row for each fault and tool, their table, and the coverage of a mesh of sessions."""

from __future__ import annotations

import msgspec


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One fault under one tool. Times count from the injection.

    Null: it did not happen while the fault was on, or the tool has no such thing.
    """

    variant: str
    where: str
    tool: str
    rep: int
    detect_ms: float | None = None
    """The time of the first detection at any end."""
    detect_all_ms: float | None = None
    """The time of the detection by the last of those that ought to detect it."""
    ought: int = 0
    """The directions that the fault concerns. For a detector: those from NIC to NIC that the fault lies on or may
    lie on, whose senders ought to know. For a mover: those that fell silent or took another way."""
    did: int = 0
    """The directions among these whose sender was told, or that flowed again while the fault was on."""
    strays: int = 0
    """Sessions that went down since the tool's last row although no fault was on, or none that concerns them."""
    move_ms: float | None = None
    """The time from which all such traffic flowed again, both ways: the arrival of the last direction's first
    packet."""
    move_out_ms: float | None = None
    """The same for the traffic from the host at the fault alone; for a fabric link, the traffic up it."""
    move_in_ms: float | None = None
    """The same for the traffic to the host alone."""
    gap_ms: float | None = None
    """The longest silence of any direction at its receiver; 0: nothing that was sent was lost."""
    packets_per_s: float | None = None
    """The detector's packets that each NIC sends into the fabric before the fault, on average. Null: it detects by
    no packets of its own."""
    said: str = ""
    """The reason why there is nothing to report, in words."""


class Coverage(msgspec.Struct, frozen=True, kw_only=True):
    """The coverage of a mesh of sessions. A session is two streams of packets, each of which takes one path."""

    tool: str
    sessions: int
    paths: int
    """Paths from NIC to NIC of different leaves, one for each spine."""
    ridden_paths: int
    trunk_ways: int
    """Links between leaves and spines, each way."""
    ridden_trunk_ways: int


def ms(since_ns: int, at_ns: int | None) -> float | None:
    """A moment in the form of a row."""
    return None if at_ns is None else round((at_ns - since_ns) * 1e-6, 2)


def last(moments: list[int | None]) -> int | None:
    """The latest; None if there is none, or one of them never came."""
    known = [moment for moment in moments if moment is not None]
    return max(known) if known and len(known) == len(moments) else None


HEADING = (
    f"{'variant':<19} {'where':<22} {'tool':<16} {'rep':>3} {'detect':>8} {'all':>8} {'did':>6} {'stray':>5} "
    f"{'move':>8} {'out':>8} {'in':>8}"
    f" {'gap ms':>8} {'pkt/s':>6}"
)


def line(row: Row) -> str:
    """A row of the table that is printed."""
    begin = f"{row.variant:<19} {row.where:<22} {row.tool:<16} {row.rep:>3}"
    if row.said:
        return f"{begin} {row.said}"
    times = [
        _number(value, 8)
        for value in (
            row.detect_ms,
            row.detect_all_ms,
            row.move_ms,
            row.move_out_ms,
            row.move_in_ms,
            row.gap_ms,
        )
    ]
    share = f"{row.did}/{row.ought}"
    return (
        f"{begin} {times[0]} {times[1]} {share:>6} {row.strays:>5} {' '.join(times[2:])} "
        f"{_number(row.packets_per_s, 6)}"
    )


def coverage_line(coverage: Coverage) -> str:
    """A coverage in words."""
    return (
        f"{coverage.tool}: {coverage.sessions} sessions ride {coverage.ridden_paths} of {coverage.paths} paths between "
        "leaves,"
        f" and {coverage.ridden_trunk_ways} of {coverage.trunk_ways} ways of the links to spines"
    )


def _number(value: float | None, width: int) -> str:
    return f"{'-':>{width}}" if value is None else f"{value:>{width}.1f}"
