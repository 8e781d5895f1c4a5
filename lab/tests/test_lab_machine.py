"""What the machine is like: shares of its processors' time, and how quick it is."""

import msgspec
import pytest

from foliot_lab import machine
from foliot_lab.machine import CpuTimes, fixed_work_s, had

STAT = "cpu  100 20 30 700 50 0 10 5 90 0\ncpu0 50 10 15 350 25 0 5 2 45 0\nintr 1\n"


def test_cpu_times_count_guests_once():
    """Idle is idle and waiting for disks; guest time is part of user time and not added again."""
    assert CpuTimes.parse(STAT) == CpuTimes(idle=750, stolen=5, total=915)


def test_a_stranger_of_a_file_is_refused():
    """A text that does not begin with the sum over all cores is refused."""
    with pytest.raises(ValueError, match="begins with 'cpu0'"):
        CpuTimes.parse("cpu0 1 2 3 4 5 6 7 8\n")


def test_shares_are_those_of_the_interval():
    """The idle and the stolen share are of what passed between two readings; if nothing has passed, it was idle."""
    before = CpuTimes(idle=100, stolen=10, total=200)
    later = CpuTimes(idle=130, stolen=15, total=300)
    assert before.idle_share(later) == pytest.approx(0.3)
    assert before.stolen_share(later) == pytest.approx(0.05)
    assert before.idle_share(before) == 1.0
    assert before.stolen_share(before) == 0.0
    assert before.stolen_from_work_share(later) == pytest.approx(5 / 70)
    assert before.stolen_from_work_share(before) == 0.0


def test_more_work_takes_longer(monkeypatch):
    """Twenty times the Python of the fixed piece of work takes more than the piece itself."""
    quick = fixed_work_s()
    add = machine._add
    monkeypatch.setattr(machine, "_add", lambda: [add() for _ in range(20)])
    assert 0 < quick < fixed_work_s()


def test_what_the_machine_was_like_is_three_figures_for_a_json():
    """Shares of the interval, and the fixed work, as numbers that JSON has."""
    found = msgspec.to_builtins(had(CpuTimes(idle=0, stolen=0, total=0)))
    assert found.keys() == {"idle_cpu", "stolen_cpu", "fixed_work_s"}
    assert 0 <= found["stolen_cpu"] <= 1 - found["idle_cpu"] <= 1
    assert found["fixed_work_s"] > 0
