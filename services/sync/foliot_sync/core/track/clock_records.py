"""The record of each clock beside its track: windows without a measurement, and its status."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foliot_sync.core.limits import CREDIBLE_NS, HOLDOVER_AFTER_WINDOWS, SETTLE_WINDOWS
from foliot_sync.core.track.status_machine import SYNCHRONISED, UNSYNCHRONISED, Evidence, after

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foliot_sync.core.arrays import Floats, Ints, Mask
    from foliot_sync.settings import SyncSettings


class ClockRecords(NamedTuple):
    """Clocks, by number."""

    missed: Ints
    """Windows in a row without a measurement."""
    status: NDArray[np.int8]
    """See `status_machine.STATUSES`."""
    neighbours: Ints
    surplus_ns: Floats
    suspected_ns: Floats
    """Where the last window was beside the prediction, if it was too far away to believe either; else 0."""
    astray_ns: Floats
    """How far the last window was from the prediction, if by more than chance explains; else 0, or what is left of
    the windows before."""
    noise_ns: Floats
    """The noise of each clock's stamps, from the pairs of the last window that reached it; 0: none did."""

    @classmethod
    def unknown(cls, clocks: int, settings: SyncSettings) -> ClockRecords:
        """Records of so many clocks of which nothing was heard."""
        ints, floats = np.zeros(clocks, dtype=np.int64), np.zeros(clocks)
        return cls(
            np.full(clocks, settings.void_after_windows),
            np.full(clocks, UNSYNCHRONISED, dtype=np.int8),
            ints,
            floats,
            floats,
            floats,
            floats,
        )

    def after(
        self,
        present: Mask,
        contradicted: Mask,
        windows: Ints,
        bound_ns: Floats,
        settings: SyncSettings,
    ) -> ClockRecords:
        """The records after the evidence of a window.

        Parameters:
            present: the clocks that were measured.
            contradicted: the clocks that were away from their predictions.
            windows: the number of windows in a row that agreed.
            bound_ns: the bound at the age at which the next state takes its place.
        """
        missed = np.where(present, 0, self.missed + 1)
        # The measurement of a suspected window is not believed, so it settles nothing.
        said = evidence(missed, np.where(self.suspected_ns != 0, 0, windows), bound_ns, settings)
        said = np.where(contradicted, np.int8(Evidence.CONTRADICTS), said)
        return self._replace(missed=missed, status=after(self.status, said))

    @property
    def synchronised(self) -> Mask:
        """The clocks that are synchronised."""
        return np.asarray(self.status == SYNCHRONISED)


def evidence(missed: Ints, windows: Ints, bound_ns: Floats, settings: SyncSettings) -> NDArray[np.int8]:
    """The evidence of a window without contradiction on each clock: see `ClockRecords.after`."""
    credible = (windows >= SETTLE_WINDOWS) & (bound_ns <= CREDIBLE_NS)
    said = np.where(credible, Evidence.AGREES, Evidence.SETTLES)
    said = np.where(missed > 0, Evidence.PASSES, said)
    said = np.where(missed >= HOLDOVER_AFTER_WINDOWS, Evidence.IS_SILENT, said)
    return np.where(missed >= settings.void_after_windows, Evidence.IS_VOID, said).astype(np.int8)
