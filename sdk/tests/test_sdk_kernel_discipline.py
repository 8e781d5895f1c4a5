"""What the kernel says of whoever disciplines its clock."""

from __future__ import annotations

import pytest

from foliot.clock.kernel_discipline import ask, error_ns, utc_error_ns

STA_PLL, STA_UNSYNC = 0x0001, 0x0040
TIME_OK, TIME_ERROR = 0, 5


@pytest.mark.parametrize(
    ("state", "status", "maxerror_us", "expected"),
    [
        (TIME_OK, STA_PLL, 1_500, 1_500_000),
        (TIME_OK, STA_PLL, 0, 0),
        (TIME_ERROR, STA_PLL | STA_UNSYNC, 16_000_000, -1),
        (-1, 0, 0, -1),
    ],
    ids=["disciplined", "says that it is exact", "nobody does", "refused"],
)
def test_only_a_disciplined_clock_has_utc(state, status, maxerror_us, expected):
    """Its error in nanoseconds, else -1."""
    assert error_ns(state, status, maxerror_us) == expected


def test_the_kernel_is_asked_and_not_told():
    """The answer is the one that the system call gives: the status lies where the kernel writes it, behind the error that it lets grow to 16 s."""
    state, asked = ask()
    assert 0 <= state <= TIME_ERROR
    assert (state == TIME_ERROR) >= bool(asked.status & STA_UNSYNC)
    assert 0 <= asked.maxerror <= 16_000_000
    assert asked.rest[2] > 0  # tolerance, in scaled ppm
    assert (utc_error_ns() == -1) == bool(asked.status & STA_UNSYNC)
