"""Processes in a lab's namespaces that the lab did not start end with it, and no others do."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from foliot_lab.fabric import capabilities
from foliot_lab.fabric.namespaces import Namespace, inside
from foliot_lab.services import foreign_processes
from foliot_lab.services.foreign_processes import see_out

pytestmark = pytest.mark.net


def lives(pid):
    """Whether a process runs; one that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def stranger(command):
    """The id of a process that does not descend from this one."""
    shell = f"setsid sh -c '{command}' >/dev/null 2>&1 & echo $!"
    return int(subprocess.run(["sh", "-c", shell], stdout=subprocess.PIPE, text=True, check=True).stdout)


@pytest.fixture
def namespace():
    """One of its own."""
    if not capabilities.is_privileged():
        pytest.skip("needs root")
    made = Namespace.make("guests")
    yield made
    made.close()


def test_strangers_in_the_namespace_end_and_nobody_else(namespace, tmp_path, until):
    """Also one that does not listen to SIGTERM; own children, and strangers elsewhere, go on."""
    elsewhere = stranger("exec sleep 1000")
    with inside(namespace):
        child = subprocess.Popen(["sleep", "1000"])
        polite = stranger("exec sleep 1000")
        stubborn = stranger(f'trap "" TERM; touch {tmp_path}/set; while :; do sleep 1; done')
    try:
        asyncio.run(until((tmp_path / "set").exists))
        assert all(map(lives, (elsewhere, child.pid, polite, stubborn)))
        asyncio.run(see_out([namespace]))

        assert [lives(pid) for pid in (polite, stubborn)] == [False, False]
        assert lives(child.pid)
        assert lives(elsewhere)
    finally:
        child.kill()
        child.wait()
        subprocess.run(["kill", "-9", str(elsewhere)], check=True)


def test_a_killed_process_that_ends_late_is_waited_for(monkeypatch):
    """A busy machine lets it end seconds after the signal."""
    clock, sent = [0.0], []

    async def pass_time(seconds):
        clock[0] += seconds

    monkeypatch.setattr(foreign_processes, "_guests", lambda *_: [7])
    monkeypatch.setattr(foreign_processes, "_has_ended", lambda _: clock[0] > 5)
    monkeypatch.setattr(foreign_processes.signal, "pidfd_send_signal", lambda _, number: sent.append(number))
    monkeypatch.setattr(foreign_processes, "asyncio", SimpleNamespace(sleep=pass_time))
    monkeypatch.setattr(foreign_processes, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    asyncio.run(see_out([]))
    assert sent == [signal.SIGTERM, signal.SIGKILL]
    assert clock[0] > 5


def test_a_namespace_that_is_closed_has_no_guests(namespace):
    """A lab is closed twice without harm."""
    namespace.close()
    asyncio.run(see_out([namespace]))
