"""The status of a clock, as a complete state machine."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from foliot_schemas.clock import ClockStatus


class Evidence(IntEnum):
    """The evidence of a window on a clock; exactly one of these."""

    AGREES = 0
    """Measured, as predicted, with a credible bound, for enough windows in a row."""
    SETTLES = 1
    """Measured, not against the prediction, but the bound is too wide or the windows are too few."""
    PASSES = 2
    """Not measured, but for so short that nothing is lost."""
    IS_SILENT = 3
    """Not measured for several windows."""
    CONTRADICTS = 4
    """Measured away from the prediction, or its stamps fit no straight line."""
    IS_VOID = 5
    """Not measured for so long that nothing can be promised, or never."""


_A, _S, _P, _Q, _C, _V = Evidence

TRANSITIONS: Final[Mapping[ClockStatus, Mapping[Evidence, ClockStatus]]] = {
    "unsynchronised": {
        _A: "synchronised",
        _S: "unsynchronised",
        _P: "unsynchronised",
        _Q: "unsynchronised",
        # Nothing was promised yet, so nothing is broken: it starts again.
        _C: "unsynchronised",
        _V: "unsynchronised",
    },
    "synchronised": {
        _A: "synchronised",
        # The estimate runs on, only its bound has grown too wide: congestion, not trouble with the clock.
        _S: "holdover",
        _P: "synchronised",
        _Q: "holdover",
        _C: "disrupted",
        _V: "unsynchronised",
    },
    "holdover": {
        _A: "synchronised",
        _S: "holdover",
        _P: "holdover",
        _Q: "holdover",
        _C: "disrupted",
        _V: "unsynchronised",
    },
    "disrupted": {
        _A: "synchronised",
        # A program that has read a wrong time must be able to see that, until the new one is certain.
        _S: "disrupted",
        _P: "disrupted",
        _Q: "disrupted",
        _C: "disrupted",
        _V: "unsynchronised",
    },
}

STATUSES: Final[tuple[ClockStatus, ...]] = tuple(TRANSITIONS)
"""The statuses by the numbers that arrays have."""
BELIEVED: Final[frozenset[ClockStatus]] = frozenset({"synchronised", "holdover"})
UNSYNCHRONISED, SYNCHRONISED = STATUSES.index("unsynchronised"), STATUSES.index("synchronised")
DISRUPTED = STATUSES.index("disrupted")

_AFTER = np.array([[STATUSES.index(row[said]) for said in Evidence] for row in TRANSITIONS.values()], np.int8)


def after(status: NDArray[np.int8], evidence: NDArray[np.int8]) -> NDArray[np.int8]:
    """The statuses that follow, one a clock."""
    return np.asarray(_AFTER[status, evidence])
