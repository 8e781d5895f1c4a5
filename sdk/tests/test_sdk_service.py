"""How a service starts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from foliot.runtime.service import EX_CONFIG, boot_id

PRINT = "from foliot.runtime.service import boot_id; print(boot_id())"


def inside_a_new_namespace() -> str:
    """The boot id that a process in a network namespace of its own has."""
    command = ["unshare", "--net", "--map-root-user", sys.executable, "-c", PRINT]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.net
def test_each_network_namespace_is_a_boot_of_its_own(monkeypatch):
    """The counters of its devices begin again, so its faults must have other names than those of the one before."""
    monkeypatch.delenv("FOLIOT_BOOT_ID", raising=False)
    kernels = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    here, first, second = boot_id(), inside_a_new_namespace(), inside_a_new_namespace()

    assert len({here, first, second}) == 3
    assert all(boot.startswith(f"{kernels}-") for boot in (here, first, second))


def test_all_processes_of_a_namespace_agree(monkeypatch):
    """Probe and agent name the same fault alike."""
    monkeypatch.delenv("FOLIOT_BOOT_ID", raising=False)
    other = subprocess.run([sys.executable, "-c", PRINT], capture_output=True, text=True, check=True).stdout.strip()

    assert other == boot_id()


def test_a_wrong_setting_is_said_in_a_line(tmp_path):
    """Also one that is found when the bus is connected to: nothing that goes wrong afterwards may hide it."""
    start = (
        "from foliot.clock import BusClock; from foliot.runtime.service import on_bus, run\n"
        "async def main():\n async with on_bus('sync', BusClock()): pass\n"
        "run('toy', main)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", start], capture_output=True, text=True, check=False,
        env={"FOLIOT_BUS__CA": str(tmp_path / "ca.pem"), "FOLIOT_TELEMETRY__ENDPOINT": ""},
    )  # fmt: skip

    assert ended.stderr == f"bus.ca: {tmp_path / 'ca.pem'}: No such file or directory\n"
    assert ended.returncode == EX_CONFIG


def test_a_given_boot_id_wins(monkeypatch):
    """For the lab's hosts."""
    monkeypatch.setenv("FOLIOT_BOOT_ID", "lab-1")

    assert boot_id() == "lab-1"


@pytest.mark.parametrize(("long_s", "kept"), [(0.0, True), (3_600.0, False)])
def test_what_survives_a_long_collection_is_not_looked_through_again(long_s, kept):
    """A fleet's memory grows for hours, and a full collection over all of it would take longer each time."""
    grow = (
        "import gc; from foliot.runtime import service\n"
        f"service._LONG_S = {long_s}\n"
        "service.keep_what_is_loaded()\n"
        "before, grown = gc.get_freeze_count(), [[] for _ in range(10_000)]\n"
        "gc.collect()\n"
        "print(gc.get_freeze_count() - before >= len(grown))"
    )
    said = subprocess.run([sys.executable, "-c", grow], capture_output=True, text=True, check=True).stdout
    assert said.strip() == str(kept)


def test_nothing_of_numpy_is_loaded_at_the_first_fault():
    """Its unique() would load a part of it when called first."""
    loaded = (
        "import sys; import numpy; from foliot.runtime import service\n"
        "service.keep_what_is_loaded()\n"
        "before = set(sys.modules)\n"
        "numpy.unique(numpy.array([1]))\n"
        "print(sorted(set(sys.modules) - before))"
    )
    assert subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True).stdout == "[]\n"
