"""The status of a clock: what may be believed of it, as a complete state machine."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from foliot_schemas.clock import ClockStatus


class Evidence(Enum):
    """What a window has said of a clock; exactly one of these."""

    AGREES = "measured, as predicted, with a credible bound, for enough windows in a row"
    SETTLES = "measured, not against the prediction, but the bound is too wide or the windows are too few"
    PASSES = "not measured, but for so short that nothing is lost"
    IS_SILENT = "not measured for several windows"
    CONTRADICTS = "measured away from the prediction, or its stamps fit no straight line"
    IS_VOID = "not measured for so long that nothing can be promised, or never"


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
        # Whoever has read a wrong time must be able to see that, until the new one is certain.
        _S: "disrupted",
        _P: "disrupted",
        _Q: "disrupted",
        _C: "disrupted",
        _V: "unsynchronised",
    },
}


def after(status: ClockStatus, evidence: Evidence) -> ClockStatus:
    """The status that follows."""
    return TRANSITIONS[status][evidence]
