"""chrony takes the time from the probe, and what it then makes of the system clock does not bend the probe's stamps.

With a real chronyd.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import datetime as dt
import itertools
import os
import random
import shutil
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from foliot.clock import HostClock, realtime_map
from foliot_probe.io import chrony_refclock
from foliot_probe.io.chrony_refclock import Refclock
from foliot_probe.io.clock_outputs import ClockOutputs
from foliot_probe.settings import ProbeSettings
from foliot_schemas import ClockState
from patience import patience

_REPOSITORY = Path(__file__).parents[3]
_FETCHED = _REPOSITORY / "run/peers"
"""Where `.ci/run` unpacks it: it is not installed, which could start a service that sets this machine's clock."""
_PATH = os.pathsep.join([str(_FETCHED / "usr/sbin"), os.environ.get("PATH", os.defpath), "/usr/sbin"])
PATIENCE_S = patience(90.0)
"""chronyd takes a dozen seconds to settle."""
MILLISECOND = 1_000_000
TICK = 40 * MILLISECOND
_IPC_RMID = 0


class Chronyd:
    """A chronyd that reads one unit of shared memory and, by -x, corrects a clock of its own: never this machine's."""

    def __init__(self, folder: Path, options: str = "") -> None:
        binary = shutil.which("chronyd", path=_PATH)
        if binary is None:
            pytest.skip(
                f"no chronyd: mkdir -p {_FETCHED} && cd {_FETCHED} && apt-get download chrony && dpkg-deb -x chrony_*.deb ."
            )
        folder.mkdir(mode=0o770)
        self.unit = random.randrange(16, 256)
        self._log = folder / "refclocks.log"
        (folder / "chrony.conf").write_text(
            f"refclock SHM {self.unit} refid FOLI poll 0 dpoll -2 filter 4 precision 1e-7 {options}\n"
            f"port 0\ncmdport 0\nbindcmdaddress {folder}/sock\npidfile {folder}/pid\nlogdir {folder}\nlog refclocks\n"
        )
        user = ["-u", "root"] if os.geteuid() == 0 else ["-U"]
        with (folder / "said").open("wb") as said:
            self.process = subprocess.Popen([binary, "-x", *user, "-d", "-f", str(folder / "chrony.conf")], stderr=said)

    def samples(self) -> list[tuple[dt.datetime, float, float]]:
        """When it looked, and what it found.

        The reference less the system clock, and less the system clock as it corrects it.
        """
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        fields = [line.split() for line in lines]
        return [
            (dt.datetime.fromisoformat(f"{each[0]}T{each[1]}+00:00"), float(each[6]), float(each[7]))
            for each in fields
            if len(each) == 9 and each[3].isdigit()
        ]

    def end(self) -> None:
        """Ends it, and takes away the memory that it leaves behind."""
        self.process.terminate()
        self.process.wait()
        libc = ctypes.CDLL(None)
        segment = libc.shmget(chrony_refclock._KEY + self.unit, ctypes.sizeof(chrony_refclock.Segment), 0)
        if segment >= 0:
            libc.shmctl(segment, _IPC_RMID, None)


@pytest.fixture
def start_chronyd(tmp_path):
    """Starts them; they end with the test."""
    started = []

    def start(options=""):
        started.append(Chronyd(tmp_path / f"chrony{len(started)}", options))
        return started[-1]

    yield start
    for each in started:
        each.end()


def follow(daemon, tell, enough):
    """Tells chronyd the time four times a second, until it has found enough."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not enough(daemon.samples()):
        assert time.monotonic() < deadline_s, daemon.samples()[-5:]
        assert daemon.process.poll() is None
        tell()
        time.sleep(0.25)
    return daemon.samples()


async def settled(daemon):
    """How many samples there are, once what was told before is read and no more come for longer than chronyd polls, or stands still."""
    async with asyncio.timeout(patience(60)):
        while True:
            before = len(daemon.samples())
            await asyncio.sleep(3.5)
            if len(daemon.samples()) == before:
                return before


def synchronised(clock, offset_ns=0, drift_ppb=0.0, **changes):
    """What sync would say of a clock whose reference is ahead of the system clock."""
    local_ns = clock.local_ns()
    known = {
        "clock": clock.name, "reference": "node1", "offset_ns": clock.epoch_ns() + offset_ns, "drift_ppb": drift_ppb, "hard_bound_ns": 500,
        "bound_ns": 50, "growth_ppb": 0.0, "as_of_ns": local_ns, "void_after_ns": local_ns + 600_000_000_000, "status": "synchronised",
    }  # fmt: skip
    return ClockState(**{**known, **changes})


def patiently(refclock, clock):
    """One sample, once chronyd has made its segment."""

    def tell():
        with contextlib.suppress(FileNotFoundError):
            refclock.tell(*clock.moment())

    return tell


def test_chrony_finds_the_offset_that_sync_said(start_chronyd):
    """With its sign, to what it takes to read two clocks one after the other."""
    clock = HostClock("node0")
    clock.update(synchronised(clock, offset_ns=-7 * MILLISECOND))
    daemon = start_chronyd("noselect")
    refclock = Refclock(daemon.unit)
    samples = follow(daemon, patiently(refclock, clock), lambda found: len(found) >= 4)
    refclock.close()

    assert np.median([raw for _, raw, _ in samples]) == pytest.approx(-0.007, abs=50e-6)


def test_a_probe_tells_chrony_while_its_time_is_to_be_trusted(start_chronyd, until, monkeypatch):
    """Once a second, from when chronyd is there; a disrupted clock is not told."""
    monkeypatch.setattr("foliot_probe.io.clock_outputs._SAMPLE_S", 0.25)
    daemon = start_chronyd("noselect")
    clock = HostClock("node0")

    async def share():
        outputs = ClockOutputs(clock, ProbeSettings(chrony_shm=daemon.unit))
        sampling = asyncio.ensure_future(outputs.sample())
        await asyncio.sleep(1.5)
        found = [len(daemon.samples())]
        clock.update(synchronised(clock))
        await until(lambda: len(daemon.samples()) >= 3)
        clock.update(synchronised(clock, status="disrupted"))
        found.append(await settled(daemon))
        await asyncio.sleep(1.5)
        found.append(len(daemon.samples()))
        sampling.cancel()
        await asyncio.gather(sampling, return_exceptions=True)
        outputs.close()
        return found

    before, told, after = asyncio.run(share())

    assert before == 0
    assert told == after >= 3


@pytest.mark.parametrize(("leap_s", "number"), [(0, 0), (1, 1), (-1, 2)])
def test_a_leap_second_is_announced_in_ntps_numbers(leap_s, number):
    """As the daemon, which makes the segment, finds it there."""
    libc, size = chrony_refclock._libc, ctypes.sizeof(chrony_refclock.Segment)
    made = libc.shmget(chrony_refclock._KEY + 211, size, 0o1600)
    try:
        refclock = Refclock(211)
        refclock.tell(5 * 10**9 + 7, 6 * 10**9 + 8, leap_s)
        segment = chrony_refclock.Segment.from_address(libc.shmat(made, None, 0))
        told = (segment.leap, segment.valid, segment.clock_s, segment.clock_ns, segment.receive_s, segment.receive_ns)
        libc.shmdt(ctypes.addressof(segment))
        refclock.close()
    finally:
        libc.shmctl(made, 0, None)
    assert told == (number, 1, 5, 7, 6, 8)


def test_a_segment_that_is_not_there_is_said(tmp_path):
    """With what to do about it."""
    with pytest.raises(OSError, match="refclock SHM 255'"):
        Refclock(255).tell(1, 1)


def test_what_chrony_makes_of_the_system_clock_does_not_bend_stamps(start_chronyd, monkeypatch):
    """It is given a time that is 3 ms ahead and 50 ppm fast, and corrects by it.

    Stamps of the clock that it corrects stay straight.

    By -x it corrects a clock of its own, and writes down what of it is correction. Between two lines of its log that is
    taken to go evenly, as a slew does.
    """
    clock = HostClock("node0")
    clock.update(synchronised(clock, offset_ns=3 * MILLISECOND, drift_ppb=50_000.0))
    daemon = start_chronyd()
    refclock = Refclock(daemon.unit)
    samples = follow(
        daemon, patiently(refclock, clock),
        lambda found: len(found) > 12 and all(abs(cooked) < 0.1 * abs(raw) for _, raw, cooked in found[-8:]),
    )  # fmt: skip
    refclock.close()
    corrected_ns = np.array([(raw - cooked) * 1e9 for _, raw, cooked in samples])
    assert np.ptp(corrected_ns) > 2 * MILLISECOND  # it did discipline

    clocks = Disciplined([(at - samples[0][0]).total_seconds() for at, _, _ in samples], corrected_ns)
    monkeypatch.setattr(realtime_map, "time", clocks)
    kept, draw = HostClock("node0")._ruler, np.random.default_rng(1)
    mapped, true = [], []
    for now_ns in range(clocks.raw_ns + TICK, clocks.end_ns, TICK):
        clocks.raw_ns = now_ns
        sent_ns = now_ns - draw.integers(0, TICK, 10)
        true.append(sent_ns)
        mapped.append(kept.realtime_to_raw(clocks.realtime_ns(sent_ns)))
    wrong_ns = np.abs(np.concatenate(mapped) - np.concatenate(true))
    # Where the correction turns from one rate to another within a tick, a hundredth of it is left; elsewhere nothing.
    assert np.percentile(wrong_ns, 90) < 100
    assert wrong_ns.max() < 0.05 * np.ptp(corrected_ns)


class Disciplined:
    """This machine's clocks, as they would be if chronyd's corrections were the system clock's."""

    CLOCK_REALTIME, CLOCK_MONOTONIC_RAW = time.CLOCK_REALTIME, time.CLOCK_MONOTONIC_RAW

    def __init__(self, at_s, corrected_ns):
        start_ns = 10**12
        self._at_ns = start_ns + np.rint(np.array(at_s) * 1e9).astype(np.int64)
        assert all(after > before for before, after in itertools.pairwise(self._at_ns))
        self._corrected_ns = corrected_ns
        self.raw_ns, self.end_ns = start_ns, int(self._at_ns[-1])

    def realtime_ns(self, raw_ns):
        """CLOCK_REALTIME at these moments."""
        return (
            raw_ns
            + 1_790_000_000 * 10**9
            + np.rint(np.interp(raw_ns, self._at_ns, self._corrected_ns)).astype(np.int64)
        )

    def clock_gettime_ns(self, clock):
        """As of `time`; each look takes 50 ns."""
        self.raw_ns += 50
        return self.raw_ns if clock == self.CLOCK_MONOTONIC_RAW else int(self.realtime_ns(self.raw_ns))
