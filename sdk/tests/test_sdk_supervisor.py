"""The supervisor."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import textwrap

import pytest

from foliot.runtime.supervisor import ProcessSpec, Supervisor, spawn

SLEEPER = ProcessSpec(name="sleeper", arguments=(sys.executable, "-c", "import time; time.sleep(600)"))


def alive(pid: int) -> bool:
    """Whether a process with this id runs."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
async def supervisor():
    """One that runs a sleeper."""
    supervisor = Supervisor()
    await supervisor.start(SLEEPER)
    yield supervisor
    await supervisor.stop()


async def test_a_process_that_dies_is_started_again(supervisor, until):
    """Whoever killed it."""
    first = supervisor.pid("sleeper")
    os.kill(first, signal.SIGKILL)
    await until(lambda: supervisor.pid("sleeper") not in {0, first})


async def test_the_first_start_may_be_another_ones(until):
    """Who makes many processes may do so more quickly; one that is started again is started by its command."""
    firsts = []

    async def first(spec):
        firsts.append(spec.name)
        return await spawn(spec)

    supervisor = Supervisor(first)
    await supervisor.start(SLEEPER)
    os.kill(before := supervisor.pid("sleeper"), signal.SIGKILL)
    await until(lambda: supervisor.pid("sleeper") not in {0, before})
    await supervisor.stop()
    assert firsts == ["sleeper"]


async def test_a_process_inherits_a_socket_that_listens(tmp_path):
    """As descriptor 3, and it is told so, as by systemd."""
    code = "import os, socket; print(os.environ['LISTEN_FDS'], socket.socket(fileno=3).getsockname()[1])"
    log = tmp_path / "log"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        arguments = (sys.executable, "-c", code)
        spec = ProcessSpec(name="told", arguments=arguments, log_file=str(log), listener=listener.fileno())
        assert await (await spawn(spec)).wait() == 0
        assert log.read_text() == f"1 {listener.getsockname()[1]}\n"


async def test_a_killed_process_stays_dead_until_it_is_released(supervisor, until):
    """A lab's kill lasts as long as the fault."""
    first = supervisor.pid("sleeper")
    supervisor.kill("sleeper")
    await until(lambda: supervisor.pid("sleeper") == 0)
    await asyncio.sleep(0.5)
    assert supervisor.pid("sleeper") == 0

    supervisor.release("sleeper")
    await until(lambda: supervisor.pid("sleeper") not in {0, first})


async def test_stop_leaves_no_process(supervisor):
    """Also a stopped (SIGSTOP) one ends."""
    pid = supervisor.pid("sleeper")
    os.kill(pid, signal.SIGSTOP)

    await supervisor.stop()

    assert not alive(pid)


def test_a_supervisor_killed_outright_takes_its_processes_along(until):
    """SIGKILL leaves nothing behind: the kernel sees to it."""
    code = textwrap.dedent("""
        import asyncio, sys
        from foliot.runtime.supervisor import ProcessSpec, Supervisor
        async def main():
            supervisor = Supervisor()
            await supervisor.start(ProcessSpec(name="x", arguments=(sys.executable, "-c", "import time; time.sleep(600)")))
            print(supervisor.pid("x"), flush=True)
            await asyncio.sleep(600)
        asyncio.run(main())
    """)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as parent:
        child = int(parent.stdout.readline())
        assert alive(child)
        parent.kill()

    asyncio.run(until(lambda: not alive(child)))
