"""The host's load, from made-up counters and from the kernel's own."""

from __future__ import annotations

import pathlib
import time

import pytest

from foliot_probe.io.host_load import HostLoadMeter
from patience import patience

SECOND_NS = 1_000_000_000


@pytest.fixture
def proc(tmp_path):
    """A folder like /proc; writes what the counters have."""

    def write(*, idle, steal, waited_us, softnet):
        for name, text in {
            "stat": f"cpu  10 0 10 {idle} 0 0 0 {steal} 0 0\ncpu0 1 2 3\n",
            "pressure/cpu": f"some avg10=0.00 avg60=0.00 avg300=0.00 total={waited_us}\nfull avg10=0.00 total=9\n",
            "net/softnet_stat": "".join(
                f"0000ffff {dropped:08x} {squeezed:08x} 0 0\n" for dropped, squeezed in softnet
            ),
        }.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(text)
        return tmp_path

    return write


def test_the_load_is_what_the_counters_gained(proc):
    """Shares of the time between two readings, counts of all processors together."""
    meter = HostLoadMeter(proc(idle=1_000, steal=10, waited_us=5_000_000, softnet=[(1, 16), (0, 1)]))
    assert meter.read(SECOND_NS) is None
    proc(idle=1_150, steal=60, waited_us=5_500_000, softnet=[(2, 32), (0, 3)])
    load = meter.read(3 * SECOND_NS)
    assert (load.span_ns, load.stolen, load.waiting) == (2 * SECOND_NS, 0.25, 0.25)
    assert (load.squeezed, load.dropped) == (18, 1)


def test_where_the_kernel_says_nothing_nothing_is_said(tmp_path):
    """Neither files nor times: no load, and no failure."""
    meter = HostLoadMeter(tmp_path)
    assert meter.read(SECOND_NS) is None
    assert meter.read(2 * SECOND_NS) is None


def test_a_kernel_without_pressure_tells_the_rest(proc):
    """Older ones do not count who waits."""
    folder = proc(idle=1_000, steal=0, waited_us=0, softnet=[(0, 0)])
    (folder / "pressure/cpu").unlink()
    meter = HostLoadMeter(folder)
    meter.read(SECOND_NS)
    (folder / "stat").write_text("cpu  10 0 10 1100 0 0 0 100 0 0\n")
    load = meter.read(2 * SECOND_NS)
    assert (load.stolen, load.waiting) == (0.5, 0.0)


def test_this_kernel_is_read():
    """The files are where the code looks for them, and in the form that it knows."""
    meter = HostLoadMeter(pathlib.Path("/proc"))
    meter.read(time.monotonic_ns())
    deadline_s = time.monotonic() + patience(20)
    while (load := meter.read(time.monotonic_ns())) is None:
        assert time.monotonic() < deadline_s
    assert load.span_ns > 0
    assert 0 <= load.stolen <= 1
