"""Programs that are forked from a process that has imported their libraries."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from pathlib import Path

import pytest

from foliot_lab.services.forker import Forker
from patience import patience

SLEEPS = ("timeit", "-n", "1", "-r", "1", "import time; time.sleep(1000)")


@pytest.fixture
def started(tmp_path):
    """Starts a module in this thread's namespace; the file with what it says."""
    forkers = []

    def start(module, *arguments, forker=None, listener=-1, **env):
        if forker is None:
            forkers.append(forker := Forker(("calendar", "timeit"), dict(os.environ)))
        said = tmp_path / f"{module}.{len(list(tmp_path.iterdir()))}"
        namespace = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        try:
            with said.open("wb") as log:
                process = forker.start(
                    module, *arguments, namespace=namespace, stdout=log.fileno(), stderr=log.fileno(), env=env,
                    listener=listener,
                )  # fmt: skip
        finally:
            os.close(namespace)
        return process, said

    start.forkers = forkers
    yield start
    for forker in forkers:
        forker.close()


pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root enters a namespace without one of users")


async def test_a_program_has_arguments_environment_and_streams_of_its_own(started):
    """As if it had been started by its name, in the folder of who starts it."""
    process, said = started("calendar", "2026", "11", OWN="yes")
    assert await process.wait() == 0 == process.returncode
    assert "November 2026" in said.read_text()
    code = "import os, sys; print(os.environ, os.getcwd(), os.getsid(0) == os.getpid(), sys.argv)"
    process, said = started("timeit", "-n", "1", "-r", "1", code, forker=started.forkers[0], OWN="yes")
    assert await process.wait() == 0
    assert f"environ({{'OWN': 'yes'}}) {Path.cwd()} True" in said.read_text()


async def test_a_program_inherits_a_socket_that_listens(started):
    """As descriptor 3, as systemd would pass it; who starts it keeps its own."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        code = "import socket; print(socket.socket(fileno=3).getsockname()[1])"
        process, said = started("timeit", "-n", "1", "-r", "1", code, listener=listener.fileno())
        assert await process.wait() == 0
        assert said.read_text().splitlines()[0] == str(listener.getsockname()[1])


async def test_exit_status_and_signal_are_told(started):
    """A failed program has said why, and one that was killed has the signal's number."""
    process, said = started("calendar", "--no-such-option")
    assert await process.wait() == 2
    assert "unrecognized arguments" in said.read_text()
    process, _ = started(*SLEEPS, forker=started.forkers[0])
    assert process.returncode is None
    process.terminate()
    assert await process.wait() == -signal.SIGTERM
    process.send_signal(signal.SIGTERM)  # it has ended, and nobody minds


async def test_programs_end_with_the_process_that_forked_them(started):
    """However that ends. Then nothing can be started any more."""
    process, _ = started(*SLEEPS)
    forker = started.forkers[0]
    os.kill(forker.pid, signal.SIGKILL)
    assert await process.wait() == -signal.SIGKILL
    async with asyncio.timeout(patience(20)):
        while _is_there(process.pid):  # noqa: ASYNC110 - a process
            await asyncio.sleep(0.01)
    with pytest.raises(ChildProcessError, match="timeit cannot be started"):
        started(*SLEEPS, forker=forker)


def _is_there(pid):
    return Path(f"/proc/{pid}").exists()


async def test_what_cannot_be_imported_is_no_program():
    """It is said when the first program is to start."""
    forker = Forker(("no_such_module",), dict(os.environ))
    with pytest.raises(ChildProcessError), open(os.devnull, "wb") as nothing:  # noqa: ASYNC230, PTH123
        forker.start("calendar", namespace=nothing.fileno(), stdout=nothing.fileno(), stderr=nothing.fileno(), env={})
    forker.close()
