"""Namespaces without names, children tied to the lab's life, and what the kernel allows."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from foliot_lab.fabric import capabilities
from foliot_lab.fabric.namespaces import Namespace, child_setup, inside, make_socket

SO_NETNS_COOKIE = 71  # asm-generic/socket.h
DEADLINE_S = 60.0
NOBODY = "65534"

ORPHAN_MAKER = """
import subprocess, sys, time
from foliot_lab.fabric import capabilities as kernel
from foliot_lab.fabric.namespaces import Namespace, child_setup, enter_control
kernel.enter()
enter_control()
host = Namespace.make("host")
child = subprocess.Popen(["sleep", "600"], preexec_fn=child_setup(host))
print(child.pid, flush=True)
time.sleep(600)
"""

BUILDER = """
from foliot_lab.fabric import capabilities as kernel
from foliot_lab.fabric.fabric import Fabric
from foliot_lab.fabric.namespaces import enter_control
from foliot_lab.scenario.topology import plan
from foliot_lab.scenario.spec import FabricSpec
print(kernel.enter())
fabric = Fabric.build(plan(FabricSpec(hosts=2, rails=1, spines=2), 7), enter_control())
print(fabric.spine("node0", "node1", "rail0", 50000) is not None)
fabric.close()
"""


def needs_root():
    """Skips the test where this process lacks the rights itself."""
    if not capabilities.is_privileged():
        pytest.skip("this process may not make network namespaces")


def here() -> str:
    """The network namespace of this thread."""
    return str(Path("/proc/thread-self/ns/net").readlink())


def cookie(sock: socket.socket) -> bytes:
    """The kernel's name for the namespace of a socket."""
    return sock.getsockopt(socket.SOL_SOCKET, SO_NETNS_COOKIE, 8)


def runs(process: Path) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return "\nState:\tZ" not in (process / "status").read_text()
    except OSError:
        return False


def as_nobody(*command: str) -> list[str]:
    """The command, run by a user without any rights."""
    setpriv = shutil.which("setpriv")
    if setpriv is None or os.geteuid() != 0:
        pytest.skip("becoming another user takes root and setpriv")
    return [setpriv, f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *command]


def needs_user_namespaces():
    """Skips the test where nobody but root may make one."""
    probe = subprocess.run(as_nobody("unshare", "-Urn", "true"), check=False, capture_output=True)
    if probe.returncode != 0:
        pytest.skip("this kernel permits no user namespaces")


@pytest.mark.net
def test_a_thread_comes_back_whatever_happens_inside():
    """After an error inside a namespace the thread is where it was before."""
    needs_root()
    before = here()
    namespace = Namespace.make("a")
    assert here() == before
    seen = []

    def fail():
        seen.append(here())
        raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"), inside(namespace):
        fail()
    assert seen != [before]
    assert here() == before
    namespace.close()
    namespace.close()


@pytest.mark.net
def test_a_socket_stays_in_the_namespace_it_was_made_in():
    """A socket made for a namespace belongs to it, though the thread is elsewhere."""
    needs_root()
    namespace = Namespace.make("a")
    with (
        make_socket(namespace, socket.AF_INET, socket.SOCK_DGRAM) as there,
        make_socket(namespace, socket.AF_INET, socket.SOCK_DGRAM) as there_too,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as outside,
    ):
        assert cookie(there) == cookie(there_too)
        assert cookie(there) != cookie(outside)
    namespace.close()


@pytest.mark.net
def test_a_closed_namespace_is_refused_by_name():
    """Entering a namespace that was let go of says which one it was."""
    needs_root()
    namespace = Namespace.make("node7")
    namespace.close()
    before = here()
    with pytest.raises(OSError, match="node7"), inside(namespace):
        pass
    assert here() == before


@pytest.mark.net
def test_a_child_starts_in_its_namespace():
    """A child set up for a namespace is in it from its first instruction."""
    needs_root()
    namespace = Namespace.make("a")
    shown = subprocess.run(
        ["readlink", "/proc/self/ns/net"], preexec_fn=child_setup(namespace), capture_output=True, text=True, check=True
    ).stdout
    with inside(namespace):
        assert shown.strip() == here()
    namespace.close()


@pytest.mark.net
def test_nothing_outlives_a_killed_lab():
    """When the lab is killed with SIGKILL, its children in namespaces end too."""
    needs_root()
    with subprocess.Popen([sys.executable, "-c", ORPHAN_MAKER], stdout=subprocess.PIPE, text=True) as lab:
        child = Path("/proc", lab.stdout.readline().strip())
        assert child.exists()
        lab.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + DEADLINE_S
    while runs(child):
        assert time.monotonic() < deadline, "the child is still there"
        time.sleep(0.01)


@pytest.mark.net
def test_this_kernel_lacks_nothing():
    """Everything that the lab builds with is tried, and this process stays where it is."""
    needs_root()
    before = here()
    assert capabilities.missing() == []
    assert here() == before


@pytest.mark.net
def test_a_user_without_rights_gets_them_in_a_user_namespace():
    """Any user finds nothing missing and builds a fabric, where the kernel permits user namespaces."""
    needs_user_namespaces()
    found = subprocess.run(
        as_nobody(sys.executable, "-m", "foliot_lab.fabric.capabilities"), check=False, capture_output=True, text=True
    )
    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")
    built = subprocess.run(as_nobody(sys.executable, "-c", BUILDER), check=False, capture_output=True, text=True)
    assert (built.stdout.split("\n")[:2], built.stderr) == (["user namespace", "True"], "")


@pytest.mark.net
def test_numpys_threads_do_not_stand_in_the_way_of_a_user_namespace():
    """Only root may have several threads, and an import of numpy starts more on a machine with several processors."""
    needs_user_namespaces()
    program = (
        "import numpy; from foliot_lab.fabric import capabilities as kernel; "
        "kernel.shed_threads(); print(kernel.enter())"
    )
    done = subprocess.run(as_nobody(sys.executable, "-c", program), check=False, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("user namespace\n", "")


def test_without_rights_the_reason_and_the_way_out_are_told(monkeypatch):
    """A kernel that permits neither root's rights nor user namespaces is told in a sentence, with what would help."""

    def refuse(flags, what):
        raise PermissionError(1, f"{what}: Operation not permitted")

    monkeypatch.setattr(capabilities, "is_privileged", lambda: False)
    monkeypatch.setattr(capabilities, "unshare", refuse)
    monkeypatch.setattr(capabilities, "IP", "")
    found = capabilities.try_all()
    assert found[0] == "There is no ip command: install iproute2."
    assert found[-1].startswith("The lab needs root, or a user namespace")
    assert "Run it as root" in found[-1]
