"""The settings of stragglers: how much slower a rank must be, and for how long."""

from __future__ import annotations

from typing import Annotated

import msgspec


class RankStragglerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Keys of ``[detector]`` about slow ranks of training jobs."""

    straggler_share: Annotated[float, msgspec.Meta(gt=0, lt=1)] = 0.1
    """The share of a job's time that a rank must cost it. It is in step again below half of that."""
    straggler_windows: Annotated[int, msgspec.Meta(ge=1, le=100)] = 2
    """In how many windows on end. One has a second, and six collectives of a group at least."""
