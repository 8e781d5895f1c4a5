"""What this process hears of nodes itself, at one moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from foliot_remediator.core.remedies.replacement.workers import Worker
    from foliot_remediator.core.state.path_health import PathHealth


class Hearing:
    """How far this process has read what nodes say, and whom it hears.

    Parameters:
        now_ns: the moment.
    """

    def __init__(self, health: PathHealth, now_ns: int) -> None:
        self.now_ns = now_ns
        self.read_ns = health.read_to_ns(now_ns)
        """The time up to which it has read what nodes say: none of them is silent for what it has yet to read."""
        self._reports = health.reports

    def is_away(self, worker: Worker) -> bool:
        """Whether nothing at all is heard of a process's node: its agent is silent, and its probe as well.

        A single word of one of them may have been late or lost.
        """
        return worker.is_silent(self.read_ns) and not self._reports.is_reporting(worker.node, self.read_ns)
