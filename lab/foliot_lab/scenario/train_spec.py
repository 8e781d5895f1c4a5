"""The part of a scenario about its training job."""

from __future__ import annotations

from typing import Annotated

import msgspec

GLOO_TIMEOUT_S = 1800.0
"""Gloo's own default: an operation may hang for half an hour."""


class TrainSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A training job: one rank on each host, on all of its rails."""

    gradient_mb: Annotated[float, msgspec.Meta(ge=1, le=1000)] = 8.0
    """Gradients reduced among all ranks in every step. With four hosts, each rank sends one and a half times as
    much. That takes a quarter of a second on two links of 200 Mb/s, beside some 30 ms of computing."""
    batch: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 8
    """Sentences of 32 tokens, for each rank and step."""
    steps: Annotated[int, msgspec.Meta(ge=1, le=10_000_000)] | None = None
    """Steps to do; None: until the run ends."""
    seed: Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)] = 7
    """Seed of weights and data."""
    timeout_s: Annotated[float, msgspec.Meta(gt=0, le=1e6)] = GLOO_TIMEOUT_S
    """Timeout of every operation of Gloo's."""
