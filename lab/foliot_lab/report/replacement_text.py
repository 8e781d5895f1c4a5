"""Replaced ranks as text, for the verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from foliot_lab.report.replacement_report import ReplacementReport


def told(row: ReplacementReport) -> str:
    """The line of a replacement under the verdict."""
    if row.to is None:
        return f"replacement: rank {row.rank} of {row.job} keeps its place: {row.refused}"
    words = [f"replacement: rank {row.rank} of {row.job} from {row.from_} to {row.to} ({row.cause})"]
    if row.first_step_ns is None:
        words.append("no step was done with it" if row.refused is None else row.refused)
    else:
        words.append(f"the first step {(row.first_step_ns - row.decided_ns) * 1e-9:.1f} s after the order")
    words.append(f"the job stood for {row.stall_ms * 1e-3:.1f} s, {row.lost_steps} steps were done again")
    if row.state_mb is not None:
        words.append(f"{row.state_mb:.1f} MB of state from rank {row.state_from}")
    return "; ".join(words)
