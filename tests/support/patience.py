"""How long a test waits for what should come: a deadline that ends a broken test, on machines slow, busy or quick.

Nothing is asserted by it. A test that asserts how long something takes belongs into a bench.
"""

from __future__ import annotations

import functools
import time

_ADDITIONS = 2_000_000
_QUICK_S = 0.14
"""What so many additions take on the machine that the deadlines were written on, two cores of 2026, with nothing else
running. Long enough that a busy neighbour takes its turns in it."""
_SLOWEST = 8.0
"""A machine slower than that is broken, and so would be a test that waited for it."""


@functools.cache
def slowness() -> float:
    """How many times as long as there a fixed piece of work takes here and now, by the clock on the wall; at least 1.

    Measured once in each process.
    """
    began_s, total = time.perf_counter(), 0
    for number in range(_ADDITIONS):
        total += number
    return min(max((time.perf_counter() - began_s) / _QUICK_S, 1.0), _SLOWEST)


def patience(seconds: float) -> float:
    """A deadline: so many seconds on a quick machine, and more on a slower one."""
    return seconds * slowness()
