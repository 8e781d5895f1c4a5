"""The time of a node, and its bound.

Every service takes a `Clock`; no core file reads the time itself. Any other process of a node calls `now`, `wait` or
`read`, without a bus or numpy.
"""

from foliot.clock.clocks import BusClock, Clock, HostClock, InjectedError, InjectedNic
from foliot.clock.page import ClockUnknown
from foliot.clock.reader import Interval, Reader, Reading, now, read, wait

__all__ = (
    "BusClock", "Clock", "ClockUnknown", "HostClock", "InjectedError", "InjectedNic", "Interval", "Reader", "Reading", "now", "read", "wait",
)  # fmt: skip
