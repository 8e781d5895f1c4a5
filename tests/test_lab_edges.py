"""What the lab does where it cannot run, is told nonsense, or is killed."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from standing_lab import descendants

from foliot_lab.fabric import capabilities
from patience import patience

FOLIOT = str(Path(sys.executable).with_name("foliot"))


def test_a_scenario_that_cannot_be_is_refused_with_its_lines(tmp_path):
    """Everything that is wrong, in one go, and exit status 2."""
    file = tmp_path / "wrong.toml"
    file.write_text('[clock]\nseed = 8\nspin = 4\n\n[[fault]]\nat_s = 1\nkind = "link-down"\nwhere = "node9.rail0"\n')
    done = subprocess.run([FOLIOT, "lab", "run", str(file)], capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert f"{file}:3: unknown key spin in clock" in done.stderr
    assert f"{file}:8: there is no node9" in done.stderr


def test_exec_into_a_lab_that_does_not_run_says_so(tmp_path):
    """In a sentence, not a traceback."""
    done = subprocess.run(
        [FOLIOT, "lab", "exec", "--folder", str(tmp_path), "node0", "--", "true"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode != 0
    assert done.stderr == f"no lab has run in {tmp_path}\n"


@pytest.mark.e2e
@pytest.mark.net
def test_where_the_kernel_permits_no_namespaces_it_says_so_and_shows_what_it_can(tmp_path):
    """On loopback addresses: clocks come into step, a killed probe is not taken for dead paths; never a success."""
    forbid = "echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --inh-caps=-all --bounding-set=-all"
    demo = f"{FOLIOT} lab demo --once --port 0 --folder {tmp_path / 'lab'}"
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "sh", "-c", f"{forbid} {demo}"],
        capture_output=True, text=True, check=False, timeout=patience(300),
    )  # fmt: skip
    if "unshare" in done.stderr:
        pytest.skip(done.stderr)

    assert done.returncode == 77, done.stdout + done.stderr
    assert "user.max_user_namespaces forbids them" in done.stderr
    assert "true error of the clocks" in done.stdout
    assert "node2/probe is dead or stalled; its paths are not blamed" in done.stdout
    assert "node2/probe is alive again" in done.stdout
    assert "nothing arrives any more" not in done.stdout


@pytest.mark.e2e
@pytest.mark.net
def test_a_lab_that_is_killed_leaves_no_process_behind(tmp_path):
    """SIGKILL: the kernel takes every process along, and with them namespaces, devices and routes."""
    missing = capabilities.missing()
    if missing:
        pytest.skip(" ".join(missing))
    scenario = tmp_path / "calm.toml"
    scenario.write_text('[fabric]\nhosts = 2\nrails = 2\n[workload]\nkind = "ring"\nload = 0.1\n')
    with subprocess.Popen(
        [FOLIOT, "lab", "run", "--force", str(scenario), "--port", "0", "--folder", str(tmp_path / "lab")],
        stdout=subprocess.PIPE, text=True,
    ) as lab:  # fmt: skip
        said = []
        while not (said and "processes started" in said[-1]):
            said.append(lab.stdout.readline())
            assert said[-1], "".join(said)
        processes = descendants(lab.pid)
        lab.kill()
    deadline_s = time.monotonic() + patience(20)
    while any(Path(f"/proc/{pid}").exists() for pid in processes) and time.monotonic() < deadline_s:
        time.sleep(0.05)

    assert len(processes) > 8
    assert [pid for pid in processes if Path(f"/proc/{pid}").exists()] == []
