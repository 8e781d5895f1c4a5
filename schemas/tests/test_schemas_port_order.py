"""Which of two reports of a port is older."""

from __future__ import annotations

import pytest

from foliot_schemas import PortState
from foliot_schemas.port_order import falls_between, is_old, returns_between

LARGEST = (1 << 32) - 1


def said(at_ns=20, downs=5, ups=5, *, index=3, fault="boot"):
    """A report."""
    return PortState(
        node="n", nic="n.r", at_ns=at_ns, carrier=True, admin_up=True, carrier_down_count=downs, carrier_up_count=ups,
        index=index, fault=fault,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("latest", "seen", "old"),
    [
        pytest.param(said(), said(at_ns=21), False, id="later"),
        pytest.param(said(), said(), False, id="told again"),
        pytest.param(said(), said(at_ns=10), True, id="earlier"),
        pytest.param(said(), said(at_ns=10, downs=6), False, id="the clock was set back"),
        pytest.param(said(), said(downs=4), True, id="earlier in the same nanosecond"),
        pytest.param(said(downs=LARGEST), said(at_ns=10, downs=0), False, id="wrapped, and the clock was set back"),
        pytest.param(said(downs=0), said(at_ns=10, downs=LARGEST), True, id="from before it wrapped"),
        pytest.param(said(downs=0, ups=0), said(at_ns=10, index=2), True, id="of the device before"),
        pytest.param(said(), said(at_ns=21, downs=0, ups=0, index=4), False, id="of a device made anew"),
        pytest.param(said(), said(at_ns=10, index=0), True, id="earlier, by a probe that names no index"),
        pytest.param(said(), said(at_ns=10, downs=0, ups=0, fault="other"), False, id="another boot"),
    ],
)
def test_counters_say_which_report_is_older(latest, seen, old):
    """Times count where the counters and the device's index leave it open."""
    assert is_old(latest, seen) is old


@pytest.mark.parametrize("between", [falls_between, returns_between])
def test_a_counter_tells_how_often_it_rose(between):
    """It begins again at 0 after 2 ** 32 - 1. A leap that no second holds, or a step back, tells nothing."""
    rises = [(5, 7), (LARGEST, 1), (7, 5), (5, 1 << 20)]

    assert [between(said(downs=old, ups=old), said(downs=new, ups=new)) for old, new in rises] == [2, 2, 0, 0]
