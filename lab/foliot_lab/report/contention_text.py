"""What was said of contention and of mismatches as text, for the terminal and the verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foliot_lab.report.contention_truth import shared_by
from foliot_lab.report.figures_text import count_of, time_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foliot_lab.report.contended import Contended
    from foliot_lab.report.contention_report import ContentionReport
    from foliot_lab.report.mismatch_report import MismatchReport

_TRUE = {True: "", False: ", which is not so", None: ""}


def told(said: ContentionReport, contended: Sequence[Contended]) -> str:
    """One event's line under the verdict: where, how soon, what was moved, and when that had helped."""
    rows = [row for row in contended if row.since_ns <= said.detected_ns and shared_by(said.links, said.flows, row)]
    began_ns = min([said.since_ns, *(row.since_ns for row in rows[-1:])])
    words = [f"found after {time_of((said.detected_ns - began_ns) * 1e-6)}", count_of(said.moves, "move")]
    if said.reverted:
        words.append("taken back, as it gained nothing")
    if said.cured_ns is not None:
        words.append(f"cured after {time_of(max(said.cured_ns - began_ns, 0) * 1e-6)}")
    place = " or ".join(said.links) if said.verdict == "fabric-contention" else said.place
    return f"contention: {said.verdict} at {place}{_TRUE[said.right]}; {'; '.join(words)}"


def told_of_mismatch(said: MismatchReport) -> str:
    """One event's line under the verdict."""
    of = "" if said.job is None else f" of job {said.job}"
    return f"mismatch: {said.flow}{of} does not take the path that is probed for it{_TRUE[said.right]}"
