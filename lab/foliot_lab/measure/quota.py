"""A CPU quota for this process and its children, which makes a quick machine slow. It is a cgroup, of version 1 or 2.

The quota is a share of all processors, handed out anew every few milliseconds. So processes see slow processors and not
long halts.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Iterator

_PERIOD_US = 4000
"""Short beside the decision times of the services (100 ms and more). It is as long as a tick of a kernel with 250
Hz, which enforces quotas by ticks."""
_LEAST_QUOTA_US = 1000
"""The kernel's least (kernel/sched/core.c, min_cfs_quota_period)."""
_PREFIX = "foliot-lab-"
_REALTIME = "FOLIOT_PROBE__REALTIME"
"""No quota binds a thread with real-time priority, so under one the probes ask for none."""
_LEAST_SHARE = 0.05
"""The least share: with less, no machine carries a fabric, not even one of two hosts on a quick machine."""
_PATIENCE_S, _LOOK_S = 2.0, 0.02
"""The time for killed processes to be gone, before their group can be removed, and the pause between two looks."""
_OWN_MEMBERSHIP, _OWN_MOUNTS, _PROCESSES = Path("/proc/self/cgroup"), Path("/proc/self/mountinfo"), Path("/proc")


class QuotaError(RuntimeError):
    """This process may not have a CPU quota; the message is a sentence that says why."""


class Hierarchy(NamedTuple):
    """A cgroup hierarchy with the CPU controller."""

    version: int
    top: Path
    """Where it is mounted."""
    own: Path
    """This process's group."""


class Limit(NamedTuple):
    """Processor time per period, both in microseconds."""

    quota_us: int
    period_us: int

    @classmethod
    def of(cls, share: float, processors: int) -> Self:
        """The limit for a share of so many processors. The period is longer if the kernel asks for a longer quota."""
        period_us = max(_PERIOD_US, round(_LEAST_QUOTA_US / (share * processors)))
        return cls(max(_LEAST_QUOTA_US, round(share * processors * period_us)), period_us)


@contextlib.contextmanager
def limited(share: float) -> Iterator[Group | None]:
    """Keeps this process, and all that it starts from now on, to a share of the processors that it may use.

    A share of 1 means no limit, and no group.

    Raises:
        QuotaError: that cannot be had.
    """
    if share >= 1:
        yield None
        return
    group, before = Group.enter(find(), share), os.environ.get(_REALTIME)
    os.environ[_REALTIME] = "false"
    try:
        yield group
    finally:
        group.leave()
        del os.environ[_REALTIME]
        if before is not None:
            os.environ[_REALTIME] = before


def share(text: str) -> float:
    """Reads a share from a command line.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not _LEAST_SHARE <= number <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no share of processors, {_LEAST_SHARE:g} to 1")
    return number


def find() -> Hierarchy:
    """The hierarchy of cgroups that limits this process's CPU time.

    Raises:
        QuotaError: there is none.
    """
    found = hierarchies(_OWN_MEMBERSHIP.read_text(), _OWN_MOUNTS.read_text())
    for each in found:
        if each.version == 1 or "cpu" in _words(each.top / "cgroup.controllers"):
            return each
    raise QuotaError("No cgroup hierarchy with the CPU controller is mounted here, so that no quota can be set.")


def hierarchies(membership: str, mounts: str) -> list[Hierarchy]:
    """The hierarchies that might have the CPU controller, version 1 first.

    They are read from the texts of ``/proc/self/cgroup`` and ``/proc/self/mountinfo``.
    """
    paths: dict[int, str] = {}
    for line in membership.splitlines():
        number, controllers, path = line.split(":", 2)
        if "cpu" in controllers.split(","):
            paths[1] = path
        elif number == "0" and not controllers:
            paths[2] = path
    found = {}
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        root, top = before.split()[3:5]
        kind, _, options = after.split(maxsplit=2)
        version = {"cgroup": 1, "cgroup2": 2}.get(kind, 0)
        if version in paths and version not in found and (version == 2 or "cpu" in options.split(",")):
            found[version] = Hierarchy(version, Path(top), _inside(Path(top), root, paths[version]))
    return [found[version] for version in sorted(found)]


def _inside(top: Path, root: str, path: str) -> Path:
    """A group's folder. The mount may show a part of the hierarchy alone, and then perhaps not this group."""
    own = os.path.normpath(path)
    below = os.path.relpath(own, root) if own.startswith(root) else "."
    return top / below


class Group:
    """A cgroup of this process with a quota. Make it by `enter`, and `leave` it whatever happens.

    Parameters:
        folder: of the group.
        back: the group to go back to.
        switched_on: the group whose CPU controller was switched on for it; None: it was on already.
    """

    def __init__(self, folder: Path, back: Path, switched_on: Path | None) -> None:
        self._folder = folder
        self._back = back
        self._switched_on = switched_on

    @classmethod
    def enter(cls, hierarchy: Hierarchy, share: float) -> Self:
        """Makes the group and moves this process there. First it removes the groups that killed labs have left.

        Raises:
            QuotaError: this process may not.
        """
        limit = Limit.of(share, len(os.sched_getaffinity(0)))
        refused: OSError | None = None
        for parent in _parents(hierarchy):
            try:
                return cls._enter(hierarchy, parent, limit)
            except OSError as error:
                refused = refused or error
        assert refused is not None
        raise QuotaError(
            f"A quota of CPU time takes the right to make a cgroup, and this user has none in {hierarchy.own}"
            f" ({refused.strerror or refused}): run it as root, or in a group that is delegated to this user."
        ) from refused

    @classmethod
    def _enter(cls, hierarchy: Hierarchy, parent: Path, limit: Limit) -> Self:
        _clean(parent)
        switched_on = None
        if hierarchy.version == 2 and "cpu" not in _words(parent / "cgroup.subtree_control"):
            (parent / "cgroup.subtree_control").write_text("+cpu")
            switched_on = parent
        group = cls(parent / f"{_PREFIX}{os.getpid()}-{_started(os.getpid())}", hierarchy.own, switched_on)
        try:
            group._folder.mkdir()
            if hierarchy.version == 1:
                (group._folder / "cpu.cfs_period_us").write_text(str(limit.period_us))
                (group._folder / "cpu.cfs_quota_us").write_text(str(limit.quota_us))
            else:
                (group._folder / "cpu.max").write_text(f"{limit.quota_us} {limit.period_us}")
            (group._folder / "cgroup.procs").write_text(str(os.getpid()))
        except OSError:
            group.leave()
            raise
        return group

    def pids(self) -> list[int]:
        """All processes in it."""
        return [int(word) for word in _words(self._folder / "cgroup.procs")]

    def leave(self) -> None:
        """Moves this process back and removes the group as soon as its other processes have ended.

        It fails silently: the next lab cleans up.
        """
        with contextlib.suppress(OSError):
            (self._back / "cgroup.procs").write_text(str(os.getpid()))
        deadline_s = time.monotonic() + _PATIENCE_S
        while not _remove(self._folder) and time.monotonic() < deadline_s:
            time.sleep(_LOOK_S)
        if self._switched_on is not None and not any(self._switched_on.glob(f"{_PREFIX}*")):
            with contextlib.suppress(OSError):
                (self._switched_on / "cgroup.subtree_control").write_text("-cpu")


def _parents(hierarchy: Hierarchy) -> Iterator[Path]:
    """The groups in which a group may be made, the nearest first.

    In version 2, a group with processes in it passes no controllers on to groups below. So a group beside it has to do.
    """
    yield hierarchy.own
    if hierarchy.version == 2:
        for parent in hierarchy.own.parents:
            if not parent.is_relative_to(hierarchy.top):
                break
            yield parent


def _clean(parent: Path) -> None:
    """Removes the groups of labs that were killed. The kernel refuses to remove a group with a process in it."""
    for folder in parent.glob(f"{_PREFIX}*"):
        pid, _, started = folder.name.removeprefix(_PREFIX).partition("-")
        if pid.isdecimal() and _started(int(pid)) != started:
            _remove(folder)


def _started(pid: int) -> str:
    """The start of a process, in ticks since boot; empty: it has ended.

    It tells the process from a later one of the same id.
    """
    try:
        return (_PROCESSES / str(pid) / "stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def _remove(folder: Path) -> bool:
    """Removes a group's folder; returns whether it is gone."""
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _words(file: Path) -> list[str]:
    try:
        return file.read_text().split()
    except OSError:
        return []
