"""The settings of hangs: how long a rank may wait."""

from __future__ import annotations

from typing import Annotated

import msgspec

_Positive = Annotated[float, msgspec.Meta(gt=0)]


class JobHangSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Keys of ``[detector]`` about training jobs that hang."""

    hang_s: _Positive = 3.0
    """For how long ranks must have waited, beside three times as long as their collectives usually lie apart. A rank
    that makes the others wait for longer from time to time, as one that writes checkpoints, gets as long as it took and
    half of that more, for two hours."""
