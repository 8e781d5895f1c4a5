"""A lab under a CPU quota: which cgroup, with what in it, and that it is gone afterwards."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from quotas import may_have_a_quota

from foliot_lab import launch
from foliot_lab.measure import quota
from foliot_lab.measure.quota import Group, Hierarchy, Limit, QuotaError, hierarchies, limited
from foliot_lab.scenario.spec import Scenario

V1 = "25 24 0:22 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid - cgroup cgroup rw,cpu,cpuacct\n"
CPUSET = "24 23 0:21 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
V2 = "30 24 0:27 {root} /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"


@pytest.mark.parametrize(
    ("membership", "mounts", "found"),
    [
        ("4:cpu,cpuacct:/a/b\n0::/c\n", CPUSET + V1, [(1, "/sys/fs/cgroup/cpu,cpuacct/a/b")]),
        ("0::/user.slice/x.scope\n", V2.format(root="/"), [(2, "/sys/fs/cgroup/user.slice/x.scope")]),
        ("0::/docker/1/x\n", V2.format(root="/docker/1"), [(2, "/sys/fs/cgroup/x")]),
        ("0::/elsewhere\n", V2.format(root="/docker/1"), [(2, "/sys/fs/cgroup")]),
        (
            "4:cpu,cpuacct:/\n0::/\n", V2.format(root="/") + V1,
            [(1, "/sys/fs/cgroup/cpu,cpuacct"), (2, "/sys/fs/cgroup")],
        ),
        ("3:cpuset:/\n", CPUSET, []),
    ],
)  # fmt: skip
def test_the_hierarchies_are_read_from_the_kernels_tables(membership, mounts, found):
    """Of both versions, with the group of this process as the mount shows it."""
    assert [(each.version, str(each.own)) for each in hierarchies(membership, mounts)] == found


@pytest.mark.parametrize(
    ("share", "processors", "limit"),
    [(0.5, 2, (4000, 4000)), (0.35, 2, (2800, 4000)), (0.5, 64, (128_000, 4000)), (0.05, 2, (1000, 10_000))],
)
def test_a_share_is_one_of_all_processors(share, processors, limit):
    """In periods of 4 ms, longer only where the kernel's least quota asks for it."""
    assert Limit.of(share, processors) == limit


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """Folders with files as cgroup2 has them, in which a group that switches no controller on for others is made."""

    def remove(folder):
        shutil.rmtree(folder, ignore_errors=True)
        return True

    monkeypatch.setattr(quota, "_remove", remove)
    own = tmp_path / "user.slice" / "x.scope"
    own.mkdir(parents=True)
    for folder, on in ((tmp_path, "cpu memory"), (own.parent, "memory cpu"), (own, "memory")):
        (folder / "cgroup.subtree_control").write_text(on)
        (folder / "cgroup.procs").write_text("")
    return Hierarchy(2, tmp_path, own)


def test_of_version_2_the_group_is_made_beside_the_own_one(tree, monkeypatch):
    """As a group with processes in it can hand no controller on; both the limit and this process are written."""
    write = Path.write_text

    def refuse(path, text):
        if path == tree.own / "cgroup.subtree_control":
            raise OSError(16, "Device or resource busy")  # as the kernel does: this process is in it
        return write(path, text)

    monkeypatch.setattr(Path, "write_text", refuse)
    group = Group.enter(tree, 0.25)
    (folder,) = tree.own.parent.glob("foliot-lab-*")
    quota_us = 1000 * len(os.sched_getaffinity(0))
    assert (folder / "cpu.max").read_text() == f"{quota_us} 4000"
    assert group.pids() == [os.getpid()]
    group.leave()
    assert not folder.exists()
    assert (tree.own / "cgroup.procs").read_text() == str(os.getpid())
    assert (tree.own.parent / "cgroup.subtree_control").read_text() == "memory cpu"


def test_a_controller_that_it_switched_on_is_switched_off_again(tree):
    """What the machine had is as it was."""
    control = tree.own / "cgroup.subtree_control"
    group = Group.enter(tree, 0.25)
    assert control.read_text() == "+cpu"
    group.leave()
    assert control.read_text() == "-cpu"


def test_groups_of_killed_labs_are_removed_and_those_of_others_stay(tree):
    """One whose owner is gone, or whose owner's id is another process's now; not that of a lab that runs."""
    (tree.own / "cgroup.subtree_control").write_text("cpu")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        running = tree.own / f"foliot-lab-{other.pid}-{quota._started(other.pid)}"
        ended = tree.own / f"foliot-lab-{2**22 + 1}-17"
        reused = tree.own / f"foliot-lab-{other.pid}-17"
        stranger = tree.own / "something"
        for folder in (running, ended, reused, stranger):
            folder.mkdir()
        Group.enter(tree, 0.5).leave()
        assert [each.exists() for each in (running, ended, reused, stranger)] == [True, False, False, True]
        other.communicate()


def test_without_the_right_it_says_so(tree, monkeypatch):
    """A sentence with the place and what helps; the lab ends with the status for what cannot be done here."""

    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(QuotaError, match=r"takes the right to make a cgroup.*Permission denied.*run it as root"):
        Group.enter(tree, 0.5)


def test_a_lab_without_the_right_ends_with_the_status_for_what_cannot_be_done_here(monkeypatch, capsys):
    """The sentence is on stderr, and nothing has been started."""

    def refuse(_):
        raise QuotaError("No right.")

    monkeypatch.setattr(launch, "limited", refuse)
    monkeypatch.setattr(launch.structlog, "configure", lambda **_: None)
    monkeypatch.setattr(launch.capabilities, "shed_threads", lambda: None)
    wish = launch.Wish(folder=Path(), report=None, port=0, speed=0.5, stay=False, forced=False, is_demo=False)
    assert launch.launch((Scenario(),), wish) == 77
    assert capsys.readouterr().err == "No right.\n"


_BURN = """
import os, subprocess, sys, time
from foliot_lab.measure.quota import limited
with limited(float(sys.argv[1])) as group:
    child = [sys.executable, "-c", "import time; input(); t = time.monotonic()\\nwhile time.monotonic() < t + 1: pass"]
    burning = [subprocess.Popen(child, stdin=subprocess.PIPE) for _ in range(2 * len(os.sched_getaffinity(0)))]
    assert {each.pid for each in burning} <= set(group.pids())
    for each in burning:
        each.stdin.write(b"\\n")
        each.stdin.flush()
    for each in burning:
        each.wait()
    print(os.times().children_user + os.times().children_system, group._folder)
"""


@pytest.mark.skipif(not may_have_a_quota(), reason="this user may make no cgroup with a CPU quota here")
def test_a_real_quota_holds_for_all_that_is_started_under_it():
    """Twice as many busy processes as processors get a quarter of them together; then the group is gone."""
    began_s = time.monotonic()
    done = subprocess.run([sys.executable, "-c", _BURN, "0.25"], capture_output=True, text=True, check=True)
    spent_s, folder = done.stdout.split()
    passed_s = time.monotonic() - began_s
    # A few periods' worth more: what a processor took from the quota it may use up later.
    assert float(spent_s) < 0.35 * passed_s * len(os.sched_getaffinity(0))
    assert not Path(folder).exists()


@pytest.mark.skipif(not may_have_a_quota(), reason="this user may make no cgroup with a CPU quota here")
def test_what_a_killed_process_left_the_next_one_removes():
    """SIGKILL leaves an empty group."""
    program = (
        "from foliot_lab.measure.quota import limited; import os, signal\n"
        "with limited(0.5) as group: print(group._folder, flush=True); os.kill(os.getpid(), 9)"
    )
    killed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    folder = Path(killed.stdout.strip())
    assert folder.exists()
    with limited(0.5):
        assert not folder.exists()


@pytest.mark.parametrize("text", ["0", "1.1", "-1", "half", "nan"])
def test_a_speed_that_is_no_share_is_refused(text):
    """In one line, with status 2, before anything is done."""
    done = subprocess.run(
        [sys.executable, "-m", "foliot.cli", "lab", "demo", "--speed", text],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert f"'{text}' is no share of processors" in done.stderr
