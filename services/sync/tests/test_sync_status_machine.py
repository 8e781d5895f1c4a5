"""The status machine, every transition of it."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

from foliot_schemas.clock import ClockStatus
from foliot_sync.core.track.clock_records import evidence
from foliot_sync.core.track.status_machine import STATUSES, TRANSITIONS, Evidence, after
from foliot_sync.settings import SyncSettings

EXPECTED = """
                unsynchronised  synchronised    holdover        disrupted
AGREES          synchronised    synchronised    synchronised    synchronised
SETTLES         unsynchronised  holdover        holdover        disrupted
PASSES          unsynchronised  synchronised    holdover        disrupted
IS_SILENT       unsynchronised  holdover        holdover        disrupted
CONTRADICTS     unsynchronised  disrupted       disrupted       disrupted
IS_VOID         unsynchronised  unsynchronised  unsynchronised  unsynchronised
"""
HEAD, *ROWS = (line.split() for line in EXPECTED.strip().splitlines())
CASES = [(status, row[0], new) for row in ROWS for status, new in zip(HEAD, row[1:], strict=True)]


@pytest.mark.parametrize(("status", "said", "new"), CASES)
def test_transition(status, said, new):
    """Each status takes each kind of evidence to the status that the table says."""
    assert STATUSES[after(np.array([STATUSES.index(status)]), np.array([Evidence[said]]))[0]] == new


def test_machine_is_complete():
    """Every status has a transition for every kind of evidence, to a status that exists."""
    statuses = set(get_args(ClockStatus))
    assert set(TRANSITIONS) == statuses == set(HEAD)
    assert all(set(row) == set(Evidence) and set(row.values()) <= statuses for row in TRANSITIONS.values())


@pytest.mark.parametrize(
    ("missed", "windows", "bound_ns", "said"),
    [
        (0, 2, 100.0, Evidence.AGREES),
        (0, 1, 100.0, Evidence.SETTLES),
        (0, 9, 60_000.0, Evidence.SETTLES),
        (1, 9, 100.0, Evidence.PASSES),
        (2, 9, 100.0, Evidence.IS_SILENT),
        (9, 9, 100.0, Evidence.IS_SILENT),
        (10, 9, 100.0, Evidence.IS_VOID),
        (10, 0, float("inf"), Evidence.IS_VOID),
    ],
)
def test_evidence(missed, windows, bound_ns, said):
    """What counts as evidence: measured or not and for how long, for how many windows, and how credible the bound."""
    arrays = np.array([missed]), np.array([windows]), np.array([bound_ns])
    assert evidence(*arrays, SyncSettings()).tolist() == [said]
