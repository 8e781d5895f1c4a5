"""A real rank that has no processor, and others that have. So no lab runs beside it, as with labs (mark `e2e`)."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from recorded_job import IS_COUNTED, collectives, recorded_job, until

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="make train installs PyTorch"),
    pytest.mark.skipif(not IS_COUNTED, reason="the kernel does not count how long processes wait for a processor"),
]


@contextlib.contextmanager
def starved(process):
    """While another process has the processor on which it may run."""
    place = min(os.sched_getaffinity(0))
    session = Path(f"/proc/{process.pid}/autogroup")
    if session.exists():  # niceness counts within a session alone, and each rank has its own (sched(7))
        session.write_text("10")
    for thread in Path(f"/proc/{process.pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), {place})
        os.setpriority(os.PRIO_PROCESS, int(thread.name), 19)
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        os.sched_setaffinity(busy.pid, {place})
        try:
            yield
        finally:
            busy.kill()


async def test_a_rank_that_has_no_processor_is_named(tmp_path):
    """Another process has the one on which it may run."""
    who = "real/rank1"
    async with recorded_job(tmp_path) as (batches, events, ranks):
        await until(lambda: any(each[3] > 50 for each in collectives(batches)))
        with starved(ranks[1]):
            await until(lambda: any((event.kind, event.who) == ("straggler", who) for event in events))

    assert next(event.state for event in events if (event.kind, event.who) == ("straggler", who)) == "processor"
