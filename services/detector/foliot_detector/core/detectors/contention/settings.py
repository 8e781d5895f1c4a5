"""The settings of contention: what a queue is, what too little is, and for how long."""

from __future__ import annotations

from typing import Annotated

import msgspec

_Positive = Annotated[float, msgspec.Meta(gt=0)]


class ContentionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Keys of ``[detector]`` about flows that share a place."""

    contention_for_s: _Positive = 0.75
    """For how long flows must be short at a place before an event says so. What nodes tell of flows is of the half
    second before, so it rests on more than a second. It is longer where nodes report less than five times a second: by
    what their reports hold beyond half a second."""
    contention_clear_s: _Positive = 2.0
    """For how long none must be short there before an event says that it is over."""
    contention_queue_us: _Positive = 50.0
    """The least delay above the usual that counts as a queue. It is some ten times what a path of a data centre varies
    by when it is idle. Where all paths vary more, the least is three times what most of them show."""
    contention_share: Annotated[float, msgspec.Meta(gt=0, lt=0.9)] = 0.8
    """A flow is short if it gets less than this share of what it could get. An event is over when the slowest gets 0.9
    of it."""
