"""What processes cost, by name, and what a quota leaves."""

import os
import subprocess
import sys

import pytest

from foliot_lab.measure import usage
from foliot_lab.measure.usage import Usage, left_over, spent_by
from foliot_lab.run import processes


def test_cost_adds_up_over_restarts(monkeypatch):
    """From the making on; a new process of a name costs from its start, one that does not run costs nothing."""
    now, spent, pids = [0.0], {1: 5.0, 2: 1.0, 3: 0.25, 9: 4.0}, {"sync": 1, "other/9": 9}
    monkeypatch.setattr(usage, "spent_by", spent.get)
    monkeypatch.setattr(usage.time, "monotonic", lambda: now[0])
    kept = Usage(lambda: pids)
    spent[1] = 6.0
    assert kept.look() == pytest.approx(1.0)
    pids["sync"] = 0
    assert kept.look() == 0.0
    pids |= {"sync": 2, "node0/probe": 3, "node1/probe": 77, "other/9": 9}
    spent[9] = 4.5
    assert kept.look() == pytest.approx(1.0 + 0.25 + 0.5)
    now[0] = 10.0
    assert kept.shares() == {"sync": 0.2, "other": 0.05, "node0/probe": 0.025}


def test_a_process_that_has_ended_has_no_cost_to_read():
    """As one has that runs."""
    assert spent_by(os.getpid()) > 0
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    assert spent_by(ended.pid) is None


@pytest.mark.parametrize(
    ("idle", "used", "speed", "left"),
    [
        (0.4, 0.6, 1.0, 0.4),  # no quota: what the machine has
        (0.7, 0.3, 0.5, 0.4),  # two fifths of the quota are left
        (0.05, 0.3, 0.5, 0.1),  # of which others on the machine take most
        (0.5, 0.52, 0.5, 0.0),  # a little more than the quota was used, by rounding
    ],
)
def test_what_is_left_under_a_quota_is_a_share_of_the_quota(idle, used, speed, left):
    """The lesser of what the quota and what the machine leave."""
    assert left_over(idle, used, speed) == pytest.approx(left)


class _Has:
    """Something with these processes."""

    def __init__(self, pids):
        self._pids = pids

    def pids(self):
        return self._pids


def test_under_a_quota_all_that_it_falls_on_counts():
    """A process without a name, such as a hog, counts as other, and only under a quota."""
    lab, load, group = _Has({"lab": 1, "sync": 2}), _Has({"flows": 3}), _Has([1, 2, 3, 40])
    assert processes(lab, load, None) == {"lab": 1, "sync": 2, "flows": 3}
    assert processes(lab, load, group) == {"lab": 1, "sync": 2, "flows": 3, "other/40": 40}
