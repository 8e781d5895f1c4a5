"""What the kernel says of whoever disciplines its clock, of TAI, and of leap seconds."""

from __future__ import annotations

import time

import pytest

from foliot.clock.kernel_discipline import KernelUtc, Timex, ask, kernel_utc, read_utc
from foliot_schemas import StampBatch

SECOND = 10**9
STA_PLL, STA_INS, STA_DEL, STA_UNSYNC = 0x0001, 0x0010, 0x0020, 0x0040
TIME_OK, TIME_INS, TIME_DEL, TIME_OOP, TIME_WAIT, TIME_ERROR = range(6)
MIDNIGHT = 1_483_228_800
"""The end of 2016, when a second was inserted."""


def told(status=STA_PLL, maxerror=1_500, tai=36, time_s=MIDNIGHT - 3_600):
    """The kernel's answer, an hour before the end of 2016."""
    return Timex(status=status, maxerror=maxerror, tai=tai, time_s=time_s)


@pytest.mark.parametrize(
    ("state", "answer", "expected"),
    [
        (TIME_OK, told(), KernelUtc(1_500_000, 36, 0, 0)),
        (TIME_OK, told(maxerror=0, tai=0), KernelUtc(0, 0, 0, 0)),
        (TIME_OK, told(tai=1), KernelUtc(1_500_000, 0, 0, 0)),
        (TIME_ERROR, told(STA_PLL | STA_UNSYNC, 16_000_000), KernelUtc(-1, 36, None, 0)),
        (TIME_ERROR, told(STA_PLL | STA_INS), KernelUtc(1_500_000, 36, None, 0)),
        (TIME_INS, told(STA_PLL | STA_INS), KernelUtc(1_500_000, 36, 1, MIDNIGHT * SECOND)),
        (TIME_INS, told(STA_INS, time_s=MIDNIGHT - 1), KernelUtc(1_500_000, 36, 1, MIDNIGHT * SECOND)),
        (TIME_INS, told(STA_INS, time_s=MIDNIGHT), KernelUtc(1_500_000, 36, 1, (MIDNIGHT + 86_400) * SECOND)),
        (TIME_DEL, told(STA_PLL | STA_DEL), KernelUtc(1_500_000, 36, -1, (MIDNIGHT - 1) * SECOND)),
        (TIME_DEL, told(STA_DEL, time_s=MIDNIGHT - 2), KernelUtc(1_500_000, 36, -1, (MIDNIGHT - 1) * SECOND)),
        (TIME_OOP, told(STA_PLL | STA_INS, tai=37, time_s=MIDNIGHT - 1), KernelUtc(1_500_000, 37, 0, 0)),
        (TIME_WAIT, told(STA_PLL | STA_INS, tai=37, time_s=MIDNIGHT), KernelUtc(1_500_000, 37, 0, 0)),
        (-1, told(), KernelUtc(-1, 0, None, 0)),
    ],
    ids=[
        "disciplined", "says that it is exact, and knows no offset", "counted a leap second from no offset",
        "nobody disciplines it", "a pulse is missing", "a second will be inserted", "at once", "a day later",
        "a second will be deleted", "in a second", "it is being inserted", "it was inserted", "refused",
    ],
)  # fmt: skip
def test_the_kernels_answer_says_what_is_known_of_utc(state, answer, expected):
    """Error, offset from TAI, and the leap second that is still to come.

    Of a clock that nobody disciplines, the offset alone.
    """
    assert read_utc(state, answer) == expected


def test_a_batch_of_stamps_has_the_same_words():
    """A probe puts the kernel's answer into its message as it is."""
    assert set(KernelUtc._fields) <= set(StampBatch.__struct_fields__)


def test_the_kernel_is_asked_and_not_told():
    """The answer is the one that the system call gives.

    The status lies where the kernel writes it, behind the error that it lets grow to 16 s.
    """
    state, asked = ask()
    assert 0 <= state <= TIME_ERROR
    assert (state == TIME_ERROR) >= bool(asked.status & STA_UNSYNC)
    assert 0 <= asked.maxerror <= 16_000_000
    assert asked.tolerance > 0  # in scaled ppm
    assert asked.tick == pytest.approx(10_000, rel=0.1)  # in microseconds, by 100 a second
    assert (kernel_utc().utc_error_ns == -1) == bool(asked.status & STA_UNSYNC)


def tai_offset_s():
    """CLOCK_TAI less CLOCK_REALTIME, in whole seconds, of two readings.

    The machine did not stand still between them.
    """
    while True:
        before_s, tai_s, after_s = map(time.clock_gettime, (time.CLOCK_REALTIME, time.CLOCK_TAI, time.CLOCK_REALTIME))
        if after_s - before_s < 0.1:
            return round(tai_s - before_s)


def test_this_kernels_time_and_offset_lie_where_they_are_read():
    """The answer's time is CLOCK_REALTIME, and its offset CLOCK_TAI less that.

    What is not known or announced is said so.
    """
    before_s = int(time.time())
    state, asked = ask()
    assert before_s <= asked.time_s <= int(time.time())
    assert asked.tai == tai_offset_s()
    found = kernel_utc()
    assert found.tai_offset_s in {0, asked.tai}
    assert (found.leap_s is None) == (state == TIME_ERROR)
    assert bool(found.leap_s) == bool(found.leap_utc_ns) == (state in {TIME_INS, TIME_DEL})
