"""A host clock with an injected error: offset, drift, wander and steps, exact at every moment.

All hosts of a lab share one kernel clock, so the truth is known: local time is CLOCK_MONOTONIC_RAW plus
`Skew.offset_ns` of it. `foliot.clock.lab_clock` finds this module by its entry point.
"""

from __future__ import annotations

import mmap
import os
import random
import struct
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray  # noqa: TC002 - part of public signatures

from foliot.clock import HostClock, InjectedError, InjectedNic
from foliot.clock.lab_clock import VARIABLE
from foliot.clock.realtime_map import CrossTimestamp
from foliot.settings import SettingsError

_STEP = struct.Struct("<q")
_WANDER_SPAN_S = 4 * 3600
"""Length of the drawn random walk. After it the wander stands still; a lab runs minutes to hours."""


_NIC_FAULTS = struct.Struct("<4q")
TAI_NS = 1_800_000_000_000_000_000
"""About where the clock in a NIC stands, which counts from 1970 and not from the boot."""


class NicSkewSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The clock that is given to a NIC: its host's, with this error, as `SkewSpec` has it."""

    start_ns: int
    """Local time of the host from which drift and wander count."""
    offset_ns: int = TAI_NS
    drift_ppb: float = 0.0
    wander_ppb: float = 0.0
    seed: int = 0
    file: str
    """What it does wrong, see `write_nic_clock`."""


class SkewSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The clock error that is injected on one host."""

    start_raw_ns: int
    """CLOCK_MONOTONIC_RAW when the lab began: drift and wander count from here."""
    offset_ns: int = 0
    drift_ppb: float = 0.0
    wander_ppb: float = 0.0
    """Random walk of the drift, in ppb per square root of a second."""
    seed: int = 0
    step_file: str = ""
    """A file of one little-endian int64, the sum of all steps so far in ns; a clock-step fault rewrites it."""
    nics: dict[str, NicSkewSpec] = {}
    """By rail, the clocks of the host's NICs."""


class Skew:
    """The injected offset of a host's local time as a function of CLOCK_MONOTONIC_RAW."""

    def __init__(self, spec: SkewSpec) -> None:
        self.spec = spec
        self._walk_ns = _walk(spec)
        self._steps: mmap.mmap | None = None
        if spec.step_file:
            with Path(spec.step_file).open("rb") as file:
                self._steps = mmap.mmap(file.fileno(), _STEP.size, prot=mmap.PROT_READ)

    def step_ns(self) -> int:
        """The sum of the steps injected so far."""
        return int(_STEP.unpack_from(self._steps)[0]) if self._steps is not None else 0

    def offset_ns(self, raw_ns: int) -> int:
        """Local time minus CLOCK_MONOTONIC_RAW at this moment of it."""
        age_s = (raw_ns - self.spec.start_raw_ns) * 1e-9
        wander_ns = 0.0
        if len(self._walk_ns):
            second = min(max(int(age_s), 0), len(self._walk_ns) - 2)
            before, after = self._walk_ns[second], self._walk_ns[second + 1]
            wander_ns = float(before + (after - before) * min(max(age_s - second, 0.0), 1.0))
        return self.spec.offset_ns + self.step_ns() + round(self.spec.drift_ppb * age_s + wander_ns)

    def offsets_ns(self, raw_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        """The offsets at many moments, as `offset_ns` gives one."""
        age_s = (raw_ns - self.spec.start_raw_ns) * 1e-9
        moved = self.spec.drift_ppb * age_s
        if len(self._walk_ns):
            moved = moved + np.interp(age_s, np.arange(len(self._walk_ns)), self._walk_ns)
        total: NDArray[np.int64] = np.rint(moved).astype(np.int64) + (self.spec.offset_ns + self.step_ns())
        return total

    def as_arrays(self) -> InjectedError:
        """The same for compiled code."""
        stepped_ns = np.zeros(1, np.int64) if self._steps is None else np.frombuffer(self._steps, np.int64)
        spec = self.spec
        return InjectedError(spec.start_raw_ns, spec.offset_ns, spec.drift_ppb, self._walk_ns, stepped_ns)


def write_nic_clock(path: Path, *, step_ns: int = 0, lies_ns: int = 0, lost: int = 0, unread: bool = False) -> None:
    """Says what the clock in a NIC does wrong, in place: who has mapped the file sees it at once.

    Parameters:
        step_ns: the sum of all its steps so far.
        lies_ns, lost, unread: as `foliot.clock.InjectedNic.faults`.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        os.pwrite(descriptor, _NIC_FAULTS.pack(step_ns, lies_ns, lost, unread), 0)
    finally:
        os.close(descriptor)


def _injected_nic(spec: NicSkewSpec) -> InjectedNic:
    """The clock of a NIC.

    Raises:
        OSError: its file cannot be read.
        ValueError: that holds too little.
    """
    with Path(spec.file).open("rb") as file:
        mapped = mmap.mmap(file.fileno(), _NIC_FAULTS.size, prot=mmap.PROT_READ)
    values = np.frombuffer(mapped, np.int64)
    error = InjectedError(spec.start_ns, spec.offset_ns, spec.drift_ppb, _walk(spec), values[:1])
    return InjectedNic(error, values[1:])


def _walk(spec: SkewSpec | NicSkewSpec) -> NDArray[np.float64]:
    """The wander's offset in ns at every whole second: the integral of a random walk of the drift."""
    if not spec.wander_ppb:
        return np.empty(0)
    draw = random.Random(spec.seed)
    drift_ppb = np.cumsum([draw.gauss(0.0, spec.wander_ppb) for _ in range(_WANDER_SPAN_S)])
    return np.concatenate(([0.0], np.cumsum(drift_ppb)))


class SkewedClock(HostClock):
    """A host's clock, and the same kernel's clocks read as if this host's were off by the skew."""

    def __init__(self, name: str, skew: Skew) -> None:
        self._skew = skew
        self.injected = skew.as_arrays()
        self.injected_nics = {rail: _injected_nic(nic) for rail, nic in skew.spec.nics.items()}
        super().__init__(name)

    def local_ns(self) -> int:
        """CLOCK_MONOTONIC_RAW, plus the skew."""
        raw_ns = super().local_ns()
        return raw_ns + self._skew.offset_ns(raw_ns)

    def reading(self) -> CrossTimestamp:
        """See `HostClock`."""
        raw_ns, realtime_ns = super().reading()
        return CrossTimestamp(raw_ns + self._skew.offset_ns(raw_ns), realtime_ns)

    def raw_to_local(self, raw_ns: int) -> int:
        """See `HostClock`."""
        return raw_ns + self._skew.offset_ns(raw_ns)

    def realtime_to_local(self, stamps_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        """See `HostClock`."""
        raw_ns = super().realtime_to_local(stamps_ns)
        return raw_ns + self._skew.offsets_ns(raw_ns)


def from_file(name: str, path: str) -> SkewedClock:
    """The clock of this name with the skew that a JSON file of a `SkewSpec` describes.

    Raises:
        SettingsError: it cannot be read as one.
    """
    try:
        return SkewedClock(name, Skew(msgspec.json.decode(Path(path).read_bytes(), type=SkewSpec)))
    except (OSError, ValueError, OverflowError) as error:
        raise SettingsError(f"{VARIABLE}: {path} is no clock skew: {error}") from error
