"""Finds the clock of a host whose error a lab injects. No other host has one."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from foliot.settings import SettingsError

if TYPE_CHECKING:
    from foliot.clock.clocks import HostClock

VARIABLE = "FOLIOT_CLOCK_SKEW"
"""Names the file with a host's clock error; empty: its clock is as it is."""
_GROUP = "foliot.lab_clock"
"""The entry point by which the lab's package says who reads such a file."""


def lab_clock(name: str, path: str) -> HostClock:
    """The clock of this name with the error that the file describes.

    Raises:
        SettingsError: the file describes none, or the lab is not installed here.
    """
    for entry in entry_points(group=_GROUP):
        clock: HostClock = entry.load()(name, path)
        return clock
    raise SettingsError(f"{VARIABLE}: {path} is a lab's, and the lab is not installed here")
