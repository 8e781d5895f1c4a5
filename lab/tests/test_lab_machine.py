"""What a run's machine and code were: shares of processor time, a fixed piece of work, the commit."""

import subprocess
import time

import pytest

from foliot_lab.measure import machine
from foliot_lab.measure.machine import QUICK_WORK_S, CpuTimes, commit, fixed_work_s, slowness

STAT = "cpu  100 20 30 700 50 0 10 5 90 0\ncpu0 50 10 15 350 25 0 5 2 45 0\nintr 1\n"


def test_cpu_times_count_guests_once():
    """Idle is idle and waiting for disks; guest time is part of user time and not added again."""
    assert CpuTimes.parse(STAT) == CpuTimes(idle=750, total=915, stolen=5)


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
    monkeypatch.setattr(machine, "_ROUNDS", 3)
    quick = fixed_work_s()
    add = machine._add
    monkeypatch.setattr(machine, "_add", lambda: [add() for _ in range(20)])
    assert 0 < quick < fixed_work_s()


def test_a_machine_is_as_slow_as_work_takes_by_the_clock_on_the_wall(monkeypatch):
    """Waits count, and a quicker machine than the one that is compared with is none that is slow."""
    monkeypatch.setattr(machine, "fixed_work_s", lambda: time.sleep(3 * QUICK_WORK_S))
    assert slowness() >= 3
    monkeypatch.setattr(machine, "QUICK_WORK_S", 3_600.0)
    assert slowness() == 1


def git(folder, *arguments):
    """Runs git there, as somebody."""
    somebody = ("-c", "user.name=somebody", "-c", "user.email=somebody@example.org")
    done = subprocess.run(["git", *somebody, "-C", folder, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_the_commit_is_that_of_the_checkout_and_says_if_the_code_differs(tmp_path):
    """A changed tracked file is told; an untracked one, such as a result, is not; no checkout has no commit."""
    assert commit(tmp_path) is None
    git(tmp_path, "init", "-q")
    assert commit(tmp_path) is None
    (tmp_path / "code").write_text("1")
    git(tmp_path, "add", "code")
    git(tmp_path, "commit", "-q", "-m", "code")
    (tmp_path / "result").write_text("1")
    assert commit(tmp_path) == git(tmp_path, "rev-parse", "HEAD")
    (tmp_path / "code").write_text("2")
    assert commit(tmp_path) == git(tmp_path, "rev-parse", "HEAD") + "+"
