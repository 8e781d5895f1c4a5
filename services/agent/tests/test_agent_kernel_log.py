"""The kernel's log: which lines are errors of GPUs, how many are told, and what happens where it cannot be read."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os

import pytest
from speaking import until
from structlog.testing import capture_logs

from foliot_agent.core.kernel_lines import Bound, GpuLine, Lines, read
from foliot_agent.kernel import kernel_log
from foliot_agent.kernel.kernel_log import KernelLog
from foliot_schemas.codec import decode, encode
from foliot_schemas.gpu import GpuError
from virtual_clock import VirtualClock

S = 1_000_000_000
LOST = b"NVRM: Xid (PCI:0000:65:00): 79, pid=1234, name=python, GPU has fallen off the bus."
FOUND = GpuLine(79, "0000:65:00", "pid=1234, name=python, GPU has fallen off the bus.")


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (LOST, FOUND),
        (b"6,1234,5678,-;" + LOST, FOUND),
        (b"3,1234,5678,c,caller=T99;" + LOST + b"\r", FOUND),
        (b"4,1,2,-;NVRM: Xid (0000:03:00): 43, Ch 10", GpuLine(43, "0000:03:00", "Ch 10")),
        (b"4,1,2,-;NVRM: Xid (PCI:0000:03:00 GPC 1): 43", GpuLine(43, "0000:03:00", "")),
        (b"NVRM: Xid (PCI:0009:01:00): 149, NETIR_LINK_EVT", GpuLine(149, "0009:01:00", "NETIR_LINK_EVT")),
        (b"NVRM: Xid (PCI:): 0", GpuLine(0, "", "")),
        (b"NVRM: Xid (PCI:0000:65:00): 31, \xff\xfe", GpuLine(31, "0000:65:00", "��")),
        (b"NVRM: Xid (PCI:0000:65:00): 31, " + b"x" * 8_000, GpuLine(31, "0000:65:00", "x" * 512)),
        (b"", None),
        (b";", None),
        (b"NVRM: GPU at PCI:0000:65:00: GPU-1", None),
        (b"NVRM: Xid (PCI:0000:65:00): 65536, too many", None),
        (b"NVRM: Xid (PCI:0000:65:00): 123456", None),
        (b"NVRM: Xid (PCI:0000:65:00): -1", None),
        (b"NVRM: Xid (PCI:0000:65:00): seven", None),
        (b"NVRM: Xid (" + b"0" * 200 + b"): 79", None),
        (b"NVRM: Xid (PCI:0000:65:00", None),
        (b"somebody says: " + LOST, None),
        (b"6,1,2,-;somebody says: " + LOST, None),
        (b" SUBSYSTEM=" + LOST, None),
        # written by a program, as root may: the facility is a user's
        (b"12,1234,5678,-;" + LOST, None),
        (b"9999999999,1,2,-;" + LOST, None),
        (b"6,1,2," + b"x" * 5_000 + b";" + LOST, None),
    ],
)
def test_only_what_the_driver_wrote_is_an_error(line, found):
    """Whatever else the line holds, nothing breaks."""
    assert read(line) == found


def test_lines_are_put_together_and_too_long_ones_left_out():
    """However the bytes come in portions."""
    lines = Lines()
    assert lines.take(b"one\ntw") == [b"one"]
    assert lines.take(b"o\n\nthree\n") == [b"two", b"", b"three"]
    for _ in range(100):
        assert lines.take(b"x" * 1_000) == []
    assert lines.take(b"end of the long one\nnext\n") == [b"next"]
    assert len(lines._rest) == 0


def test_errors_of_a_second_are_bounded_and_none_drowns_in_another():
    """A driver that repeats itself leaves room; what is left out is counted."""
    bound = Bound()
    errors = [GpuLine(31, "a", "")] * 100 + [GpuLine(79, "b", "")] + [GpuLine(xid, "c", "") for xid in range(20)]
    told = [error for error in errors if bound.passes(error, S)]
    assert [(each.xid, each.device) for each in told] == [(31, "a")] * 3 + [(79, "b")] + [(x, "c") for x in range(6)]
    assert bound.left_out == 111
    assert bound.passes(GpuLine(31, "a", ""), 2 * S)
    assert bound.passes(GpuLine(31, "a", ""), S - 1)  # the clock was set back


@pytest.fixture
async def made():
    """Makes a follower of a file there, with what it has told."""
    opened = []

    def make(path):
        told = []
        log = KernelLog(str(path), "node0", VirtualClock(), told.append)
        opened.append(log)
        log.told = told
        log.open()
        return log

    yield make
    for each in opened:
        each.close()


@pytest.fixture
async def fifo(tmp_path):
    """The path of a FIFO, as a lab has one for each host."""
    path = tmp_path / "kmsg"
    os.mkfifo(path)
    return path


def write(path, data):
    """Writes to it once, and leaves."""
    opened = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    os.write(opened, data)
    os.close(opened)


async def test_errors_are_told_as_they_are_written(made, fifo):
    """Also by a second writer after the first has left; a line that is not whole waits."""
    log = made(fifo)
    write(fifo, b"6,1,2,-;something else\n6,1,3,-;" + LOST[:20])
    write(fifo, LOST[20:] + b"\n")
    await until(lambda: log.told)
    write(fifo, b"NVRM: Xid (PCI:0000:66:00): 94, Contained\n")
    await until(lambda: len(log.told) == 2)

    first, second = log.told
    assert (first.node, first.xid, first.device, first.message) == ("node0", *FOUND)
    assert (first.at_ns, first.bound_ns) == (VirtualClock().now_ns(), 100)
    assert (second.xid, second.device) == (94, "0000:66:00")
    assert decode(encode(first), GpuError) == first


async def test_a_flood_is_read_and_few_of_it_are_told(made, fifo):
    """The loop turns meanwhile."""
    log = made(fifo)
    with capture_logs() as logs:
        for _ in range(50):
            write(fifo, (LOST + b"\n") * 40)
            await asyncio.sleep(0)
        write(fifo, b"NVRM: Xid (PCI:0000:66:00): 94, Contained\n")
        await until(lambda: log.told and log.told[-1].xid == 94)

    assert [each.xid for each in log.told] == [79] * 3 + [94]
    assert log._bound.left_out == 1_997
    assert [each["count"] for each in logs if each["event"] == "gpu_errors_left_out"] == [1 << n for n in range(11)]


async def test_records_that_were_overwritten_are_passed_over(made, fifo, monkeypatch):
    """The kernel says EPIPE once, and goes on with the oldest that is left."""
    log = made(fifo)
    overrun = [OSError(errno.EPIPE, "Broken pipe")]
    real = os.read

    def reads(file, size):
        if file == log._file and overrun:
            raise overrun.pop()
        return real(file, size)

    monkeypatch.setattr(kernel_log.os, "read", reads)
    write(fifo, LOST + b"\n")
    await until(lambda: log.told)
    assert not overrun


@pytest.mark.parametrize("what", ["nothing", "a file", "a folder"])
async def test_what_cannot_be_followed_is_said_once(made, tmp_path, what):
    """All else goes on."""
    path = tmp_path / "kmsg"
    if what == "a file":
        path.write_text("")
    if what == "a folder":
        path.mkdir()
    with capture_logs() as logs:
        log = made(path)
        log.close()
    assert [each["event"] for each in logs] == ["kernel_log_not_read"]
    assert log._file == -1


async def test_a_log_that_fails_is_followed_no_more(made, fifo, monkeypatch):
    """It is said once, too."""
    log = made(fifo)

    def fails(*_):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(kernel_log.os, "read", fails)
    with capture_logs() as logs:
        write(fifo, LOST + b"\n")
        await until(lambda: log._file == -1)
    assert [(each["event"], each["reason"]) for each in logs] == [("kernel_log_not_read", "Input/output error")]


def records(file):
    """How many there are to be read."""
    count = 0
    with contextlib.suppress(BlockingIOError):
        while count < 10_000:
            os.read(file, 8_192)
            count += 1
    return count


async def test_the_device_itself_is_followed_from_its_end(made):
    """Where this user may read it; what it holds already is not told."""
    if not os.access("/dev/kmsg", os.R_OK):
        pytest.skip("this user may not read /dev/kmsg")
    log = made("/dev/kmsg")
    if log._file < 0:
        pytest.skip("this kernel shows its log to nobody without CAP_SYSLOG")
    whole = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    assert records(log._file) < records(whole)
    os.close(whole)
