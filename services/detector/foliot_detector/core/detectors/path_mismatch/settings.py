"""The settings of mismatches: how much quicker than its path a flow must be, and for how long."""

from __future__ import annotations

from typing import Annotated

import msgspec

_Positive = Annotated[float, msgspec.Meta(gt=0)]


class PathMismatchSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Keys of ``[detector]`` about traffic that does not take the path that is probed for it."""

    mismatch_us: _Positive = 1_000.0
    """By how much a flow's round trips must at least be quicker than probes of its path are, there and back. They must
    take less than half of the time, too. It is far above what stamps are wrong by."""
    mismatch_for_s: _Positive = 2.0
    """For how long they must be so, and never otherwise while the path is late."""
