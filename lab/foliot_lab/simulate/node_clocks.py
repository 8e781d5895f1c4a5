"""Simulated clocks of nodes: their reading of the reference time, and its bound."""

from __future__ import annotations

from typing import NamedTuple


class Setting(NamedTuple):
    """The course of a clock from a moment on."""

    since_ns: int
    error_ns: int
    bound_ns: int
    """The bound; -1: not synchronised."""


class Clock:
    """The clock of a node. Its rate is right: its wander in the simulated seconds lies within the bound.

    Parameters:
        error_ns: the error from the beginning on.
        bound_ns: the bound from the beginning on.
    """

    def __init__(self, error_ns: int, bound_ns: int) -> None:
        self._settings = [Setting(0, error_ns, bound_ns)]

    def set(self, *settings: Setting) -> None:
        """Sets the courses from these moments on, in order."""
        self._settings += settings

    def now_ns(self, at_ns: int) -> int:
        """The clock's reading of a true time."""
        return at_ns + self._at(at_ns).error_ns

    def bound_ns(self, at_ns: int) -> int:
        """The stated bound of that reading."""
        return self._at(at_ns).bound_ns

    def _at(self, at_ns: int) -> Setting:
        return next(setting for setting in reversed(self._settings) if setting.since_ns <= at_ns)
