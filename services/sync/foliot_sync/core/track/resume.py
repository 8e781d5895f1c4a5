"""Resumes the tracks of an earlier run, or of another leader, from the states published last."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foliot_schemas.bounds import FAR_NS
from foliot_schemas.clock import same_boot
from foliot_schemas.names import is_nic_clock
from foliot_sync.core.limits import SETTLE_WINDOWS, SIGMAS
from foliot_sync.core.track.clock_records import ClockRecords
from foliot_sync.core.track.kalman import ClockTracks
from foliot_sync.core.track.status_machine import BELIEVED, STATUSES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from foliot_schemas import HeardNode
    from foliot_schemas.clock import ClockState
    from foliot_sync.settings import SyncSettings

_FRESH = 1.25
"""Windows of age that are no missed windows. A measurement of the last window is one and a half to little more than two
windows old when the next one is closed."""
_MOST = 1e9
"""A second, and as much in a second. A clock with a wider bound or growth was not in step, whatever its status."""


class FormerRun(NamedTuple):
    """The clocks whose states of an earlier run still hold."""

    names: list[str]
    tracks: ClockTracks
    """Measured in the common time."""
    records: ClockRecords
    heir: int
    """The clock to measure against from now on, by its place in `names`."""
    now_ns: int
    """The common time."""
    unheard: dict[str, int]
    """Clocks whose hosts have not spoken yet, with their former CLOCK_REALTIME minus local time.

    The hosts may have booted since.
    """


def former_run(said: Mapping[str, ClockState], heard: Sequence[HeardNode], settings: SyncSettings) -> FormerRun | None:
    """The part of the last states that can be resumed; None: no clock heard now was known, or it is void by now.

    Parameters:
        said: the last state of each clock.
        heard: reports of nodes in the first window.
    """
    spoken = {node.node: node for node in heard}
    believed = {name: state for name, state in said.items() if _is_sound(state)}
    booted = {
        name for name in believed if name in spoken and not same_boot(spoken[name].epoch_ns, believed[name].epoch_ns)
    }
    present = [name for name in believed if name in spoken and name not in booted]
    if not present:
        return None
    # The median, because one of the clocks may have been stepped meanwhile.
    ends = sorted(believed[name].reference_ns(spoken[name].until_ns) + spoken[name].since_ns for name in present)
    now_ns = ends[len(ends) // 2]
    lasting = [
        state
        for name, state in believed.items()
        if name not in booted and state.reference_ns(state.void_after_ns) > now_ns
    ]
    names = [state.clock for state in lasting]
    able = [state for state in lasting if state.status == "synchronised" and state.clock in spoken]
    if not able:
        return None
    return FormerRun(
        names=names,
        tracks=_tracks(lasting, now_ns, settings),
        records=_records(lasting, now_ns, settings),
        heir=names.index(_heir(able, settings.reference)),
        now_ns=now_ns,
        unheard={
            state.clock: state.epoch_ns
            for state in lasting
            if state.clock not in spoken and not is_nic_clock(state.clock)
        },
    )


def _is_sound(state: ClockState) -> bool:
    """Whether sync can go on with a state."""
    sizes = (
        state.bound_ns,
        state.hard_bound_ns,
        state.growth_ppb,
        state.wander_ppb,
        state.stamp_noise_ns,
        state.rate_wander_ppb,
    )
    near = abs(state.reference_ns(state.as_of_ns)) < FAR_NS and abs(state.reference_ns(state.void_after_ns)) < FAR_NS
    has_epoch = state.epoch_ns != 0 or is_nic_clock(state.clock)  # nobody asks a clock in a NIC for the date
    return state.status in BELIEVED and has_epoch and near and all(0 <= size < _MOST for size in sizes)


def newest(words: Iterable[Mapping[str, ClockState]]) -> dict[str, ClockState]:
    """The latest state of each clock, from several collections."""
    found: dict[str, ClockState] = {}
    for word in words:
        for name, state in word.items():
            known = found.get(name)
            if known is None or state.reference_ns(state.as_of_ns) > known.reference_ns(known.as_of_ns):
                found[name] = state
    return found


def _heir(able: Sequence[ClockState], wanted: str) -> str:
    """The wanted reference, or the former one, or by name the first."""
    names = {state.clock for state in able}
    for name in (wanted, *sorted({state.reference for state in able})):
        if name in names:
            return name
    return min(names)


def _tracks(states: Sequence[ClockState], now_ns: int, settings: SyncSettings) -> ClockTracks:
    """The tracks of clocks now, by their last states. They claim no more than was promised."""
    local_ns = [_local_ns(state, now_ns) for state in states]
    pairs = list(zip(states, local_ns, strict=True))
    bound = np.array([each.bound_at_ns(at_ns) for each, at_ns in pairs], np.float64) / SIGMAS
    growth = np.array([each.growth_ppb for each in states]) / SIGMAS
    wander = np.array([each.wander_ppb for each in states]) / SIGMAS
    # The filter's variances are greater than those of the bound, as its density is.
    density = np.maximum(3 * wander**2, 2 * settings.least_wander_ppb**2)
    greater = np.maximum(np.array([each.rate_wander_ppb for each in states]) ** 2 / density, 1.0)
    void = np.array([each.void_after_ns for each in states], np.int64)
    return (
        ClockTracks.unknown(len(states), settings.wander_ppb)
        ._replace(
            as_of_ns=np.array(local_ns, np.int64),
            offset_ns=np.array([each.reference_ns(at_ns) - at_ns for each, at_ns in pairs], np.int64),
            drift_ppb=np.array([each.drift_ppb for each in states], np.float64),
            # Nothing is known better than whole nanoseconds say.
            p00=np.maximum(bound, 1.0) ** 2 * greater,
            p01=np.zeros(len(states)),
            p11=np.maximum(growth, 1.0) ** 2 * greater,
            hard_ns=np.array([each.hard_bound_at_ns(at_ns) for each, at_ns in pairs], np.float64),
            measured_ns=void - settings.void_after_windows * settings.window_ns,
            windows=np.full(len(states), SETTLE_WINDOWS),
            density=density * greater,
        )
        .anew()
    )


def _local_ns(state: ClockState, now_ns: int) -> int:
    """The local time of a clock at a common time."""
    since_ns = now_ns - state.reference_ns(state.as_of_ns)
    return state.as_of_ns + round(since_ns / (1 + state.drift_ppb * 1e-9))


def _records(states: Sequence[ClockState], now_ns: int, settings: SyncSettings) -> ClockRecords:
    lasts_ns = settings.void_after_windows * settings.window_ns
    ages = [(now_ns - state.reference_ns(state.void_after_ns) + lasts_ns) / settings.window_ns for state in states]
    return ClockRecords(
        missed=np.maximum(np.floor(np.array(ages) - _FRESH).astype(np.int64), 0),
        status=np.array([STATUSES.index(state.status) for state in states], np.int8),
        neighbours=np.array([state.neighbours for state in states], np.int64),
        surplus_ns=np.array([state.surplus_ns for state in states], np.float64),
        suspected_ns=np.zeros(len(states)),
        astray_ns=np.zeros(len(states)),
        noise_ns=np.array([state.stamp_noise_ns for state in states], np.float64),
    )
