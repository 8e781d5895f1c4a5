"""How many ranks may be replaced: at once, in an hour, and of a job that makes no step."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING

from foliot_remediator.core.actions.guards import Objection

if TYPE_CHECKING:
    from foliot_remediator.core.remedies.replacement.workers import TrainingJob
    from foliot_remediator.settings import RemediatorSettings
    from foliot_schemas.event import Evidence

_MOST_AT_ONCE = 512
"""Half of the changes that an order may have: it may say again what is under way."""
_HOUR_NS = 3_600_000_000_000


class Limits:
    """The limits of the settings. Ranks are counted, whichever job they are of."""

    def __init__(self, settings: RemediatorSettings) -> None:
        self._at_once = min(settings.replacements_at_once, _MOST_AT_ONCE)
        self._per_hour = settings.replacements_per_hour
        self._without_progress = settings.replacements_without_progress
        self._spent: collections.deque[tuple[int, int]] = collections.deque()
        """When how many ranks were given away."""

    def spend(self, ranks: int, now_ns: int) -> None:
        """Counts ranks that were given away."""
        self._spent.append((now_ns, ranks))

    def object_to(self, job: TrainingJob, ranks: int, now_ns: int) -> Objection | None:
        """The objection to replacing so many ranks of a job now; None: there is none."""
        if ranks > self._at_once:
            return Objection(guard="at-once", evidence={"ranks": ranks, "replacements_at_once": self._at_once})
        if job.fruitless >= self._without_progress:
            return Objection(guard="no-progress", evidence={"replacements": job.fruitless, "step": job.highest_step})
        while self._spent and self._spent[0][0] <= now_ns - _HOUR_NS:
            self._spent.popleft()
        spent = sum(ranks for _, ranks in self._spent)
        if spent + ranks > self._per_hour:
            evidence: Evidence = {"ranks": ranks, "replaced": spent, "replacements_per_hour": self._per_hour}
            return Objection(guard="per-hour", evidence=evidence)
        return None
