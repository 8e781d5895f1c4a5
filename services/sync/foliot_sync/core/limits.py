"""Limits to which sync holds clocks and their windows, each with its reason."""

from __future__ import annotations

from typing import Final

WORST_PPB: Final = 1_000.0
"""The hard bound's growth.

A clock's rate may differ by so much from its last window's, whatever befell it. As chrony's `maxclockerror`.
"""
RATE_LIMIT_PPB: Final = 200_000.0
"""Two clocks never run further apart: twice the 100 ppm that the worst PC crystals are sold with."""
SIGMAS: Final = 4.0
"""Width of the statistical bound, as in fbclock."""
GATE_SIGMAS: Final = 6.0
"""A window further than this from its prediction contradicts it: the clock was stepped or slewed."""
CREDIBLE_NS: Final = 50_000
"""A clock whose bound is wider is not called synchronised. Its time would not order the events of two hosts."""
SETTLE_WINDOWS: Final = 2
"""Windows that must agree before a clock is called synchronised: the first one only says where it starts."""
HOLDOVER_AFTER_WINDOWS: Final = 2
"""Windows in a row without a measurement before a clock is in holdover.

One alone comes of the phase of a probe's window against sync's.
"""
TAKEOVER_WINDOWS: Final = 3
"""Windows without the reference before another clock takes its place."""
