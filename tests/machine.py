"""A machine with a real systemd of its own, in namespaces over this machine's root, in memory."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from patience import patience

_SYSTEMD = Path("/lib/systemd/systemd")
_REPOSITORY = Path(__file__).parents[1]
_CGROUPS = (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup"))
"""Where cgroup2 is mounted: beside cgroups of version 1, or alone."""
_MEMBERS = ("schemas", "sdk", "lab", *(f"services/{path.name}" for path in (_REPOSITORY / "services").iterdir()))
_BOOT_S = patience(60.0)
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def until(condition, what: str) -> None:
    """Waits for another process to make something true."""
    deadline_s = time.monotonic() + _BOOT_S
    while not condition():
        if time.monotonic() > deadline_s:
            pytest.fail(f"not within {_BOOT_S} s: {what}")
        time.sleep(0.1)


class Machine:
    """Boots when entered; `run` runs a command in it."""

    def __init__(self, folder: Path) -> None:
        if not _SYSTEMD.exists():
            pytest.skip("there is no systemd on this machine")
        if os.geteuid():
            pytest.skip("booting systemd needs root")
        hierarchy = next((path for path in _CGROUPS if (path / "cgroup.procs").exists()), None)
        if hierarchy is None:
            pytest.skip("there is no cgroup2 on this machine")
        self._cgroup = hierarchy / f"foliot-test-{os.getpid()}"
        self._folder = folder
        self._unshare: subprocess.Popen[bytes] | None = None
        self._init = 0

    def __enter__(self):
        """Waits until systemd has started all that it wants to."""
        try:
            self._boot()
            until(self._is_up, "systemd has started")
            self._install()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _boot(self) -> None:
        self._cgroup.mkdir()

        def move() -> None:
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # however the test ends, the machine ends with it
            (self._cgroup / "cgroup.procs").write_text(str(os.getpid()))

        mounted = self._folder / "machine"
        mounted.mkdir()
        with (self._folder / "boot.log").open("wb") as log:
            self._unshare = subprocess.Popen(
                ["unshare", "--fork", "--kill-child", "--pid", "--mount", "--uts", "--ipc", "--net", "--cgroup",
                 "--propagation", "private", "bash", str(Path(__file__).with_name("machine.sh")),
                 str(mounted), str(_REPOSITORY), sys.base_prefix],
                stdout=log, stderr=log, preexec_fn=move,  # noqa: PLW1509 - the test has one thread
            )  # fmt: skip

    def __exit__(self, *_):
        """Ends all of it at once."""
        (self._cgroup / "cgroup.kill").write_text("1")
        if self._unshare is not None:
            self._unshare.wait()
        until(lambda: "populated 0" in (self._cgroup / "cgroup.events").read_text(), "its processes have ended")
        for path in sorted(self._cgroup.rglob("*/"), reverse=True):
            path.rmdir()
        self._cgroup.rmdir()

    def run(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Runs a command inside."""
        done = subprocess.run(
            ["nsenter", "-t", str(self._init), "-a", *command], capture_output=True, text=True, check=False
        )
        if check:
            assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done

    def foliot(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Runs the command ``foliot`` as installed inside."""
        return self.run("/opt/foliot/bin/python", "-m", "foliot.cli", *arguments, check=check)

    def _is_up(self) -> bool:
        assert self._unshare is not None
        if self._unshare.poll() is not None:
            pytest.skip(f"systemd cannot be booted here: {(self._folder / 'boot.log').read_text()[-500:]}")
        children = Path(f"/proc/{self._unshare.pid}/task/{self._unshare.pid}/children").read_text().split()
        if not children or Path(f"/proc/{children[0]}/exe").resolve().name != "systemd":
            return False
        self._init = int(children[0])
        return self.run("systemctl", "is-system-running", check=False).stdout.strip() in {"running", "degraded"}

    def _install(self) -> None:
        """Into /opt/foliot, where units can see it, from this repository and what it has installed."""
        # A Python that was built with a shared library looks for it where it was built, which units cannot see.
        self.run("systemctl", "set-environment", "LD_LIBRARY_PATH=/opt/python/lib")
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        self.run(f"/opt/python/bin/{version}", "-m", "venv", "--without-pip", "/opt/foliot")
        site = f"/opt/foliot/lib/{version}/site-packages"
        installed = Path(pytest.__file__).parents[1].relative_to(_REPOSITORY)
        lines = "\n".join(f"/opt/src/{path}" for path in (*_MEMBERS, installed))
        self.run("bash", "-c", f"echo '{lines}' > {site}/foliot.pth")
