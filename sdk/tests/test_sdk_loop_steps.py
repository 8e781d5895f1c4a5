"""How long the steps of a loop take: counted, kept, read by others, and said in the log."""

from __future__ import annotations

import asyncio
import json
import selectors
import subprocess
import sys
import time

import pytest

from foliot.runtime import loop_steps
from foliot.runtime.loop_steps import Counted, Histogram, Steps, read
from foliot.settings import SettingsError

MS = 1_000_000


def counted(*ms):
    """A histogram of steps of these lengths."""
    steps = Steps.kept()
    for each in ms:
        steps.add(round(each * MS), 0)
    return steps.counted().took


@pytest.mark.parametrize("ms", [0.0, 0.004, 0.009, 0.08, 0.5, 1.0, 3.0, 9.99, 10.0, 11.0, 140.0, 4000.0, 1e9])
def test_a_step_is_known_to_an_eighth(ms):
    """Rounded up, never down, and by 10 us where an eighth is less; beyond hours all are one."""
    told_ms = counted(ms).within_ms(1)
    if ms < 1e6:
        assert ms < told_ms <= max(ms * 1.126, ms + 0.0198)
    assert counted(ms).steps == 1


def test_ten_milliseconds_are_long_and_less_is_not():
    """The bound is one of the buckets', so that the count is no estimate."""
    assert [counted(ms).long for ms in (9.99, 10.0, 10.01, 500.0)] == [0, 1, 1, 1]


def test_shares_of_the_steps_are_told_by_their_length():
    """Of 98 short and two long ones the median is short and the 99th of a hundred long."""
    some = counted(*[0.1] * 98, 40.0, 70.0)
    assert some.steps == 100
    assert some.within_ms(0.5) == pytest.approx(0.1, rel=0.13)
    assert some.within_ms(0.99) == pytest.approx(40, rel=0.13)
    assert some.within_ms(1) == pytest.approx(70, rel=0.13)
    assert Histogram().within_ms(0.5) == 0.0
    assert some.by_bound() == {"1": 98, "50": 1, "100": 1}


def test_what_came_before_can_be_taken_off():
    """So that a start's long steps are not a run's."""
    steps = Steps.kept()
    steps.add(900 * MS, 800 * MS)
    before = steps.counted()
    steps.add(2 * MS, 1 * MS)
    assert steps.counted().since(before) == Counted(counted(2), counted(1))


def test_the_steps_of_a_real_loop_are_counted(monkeypatch):
    """One that blocks is as long as it blocks; waiting is no step.

    What the machine itself takes does not count here: time passes in both alone.
    """
    now_ns, waited_ns, wait = 0, 0, selectors.EpollSelector.select

    def pass_by(selector, timeout=None):
        nonlocal now_ns, waited_ns
        now_ns, waited_ns = now_ns + round((timeout or 0) * 1e9), waited_ns + round((timeout or 0) * 1e9)
        return wait(selector, timeout)

    async def turn():
        nonlocal now_ns
        now_ns += 30 * MS
        await asyncio.sleep(0.2)

    monkeypatch.setattr(selectors.EpollSelector, "select", pass_by)
    monkeypatch.setattr(loop_steps, "perf_counter_ns", lambda: now_ns)
    steps = Steps.kept()
    with asyncio.Runner(loop_factory=steps.loop) as runner:
        runner.run(turn())
        found = steps.counted().took
        assert 30 < found.within_ms(1) <= 30 * 1.126
        assert waited_ns
        runner.run(asyncio.sleep(0.2))
    assert steps.counted().took.since(found).within_ms(1) <= 0.02


def test_what_a_step_works_is_told_from_what_it_waits():
    """One that sleeps for 60 ms and one that computes for 60 ms are alike to who waits for them.

    They are not alike to who looks for the cause.
    """
    steps = Steps.kept()

    async def turn(work):
        work()
        await asyncio.sleep(0)

    def compute():
        end_ns = time.thread_time_ns() + 60 * MS
        while time.thread_time_ns() < end_ns:
            pass

    with asyncio.Runner(loop_factory=steps.loop) as runner:
        runner.run(asyncio.sleep(0))
        before = steps.counted()
        runner.run(turn(lambda: time.sleep(0.06)))
        slept = steps.counted().since(before)
        runner.run(turn(compute))
        computed = steps.counted().since(before).since(slept)
    assert slept.took.within_ms(1) >= 60
    assert slept.own.within_ms(1) < 30
    assert computed.took.within_ms(1) >= 60
    assert computed.own.within_ms(1) >= 60


def test_another_process_reads_them_also_after_a_kill(tmp_path):
    """And a new process of the same name counts on."""
    file = tmp_path / "sync.steps"
    program = (
        "import os, signal, sys; from foliot.runtime.loop_steps import Steps\n"
        "Steps.kept(sys.argv[1]).add(20_000_000, 5_000_000); os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert read(file).took.steps == 0
    for _ in range(2):
        assert subprocess.run([sys.executable, "-c", program, file], check=False).returncode == -9
    assert read(file) == Counted(counted(20, 20), counted(5, 5))


def test_a_file_that_is_no_histogram_counts_as_none(tmp_path):
    """As what an older version left, say."""
    (tmp_path / "x").write_bytes(b"something")
    assert read(tmp_path / "x") == Counted(Histogram(), Histogram())


def test_a_file_that_cannot_be_written_is_said_with_its_setting(tmp_path):
    """At the start, in a line."""
    with pytest.raises(SettingsError, match=r"telemetry.loop_steps: .*none/x cannot be written: No such file"):
        Steps.kept(str(tmp_path / "none" / "x"))


async def test_the_log_tells_of_minutes_with_long_steps(monkeypatch, until):
    """And of no others: the counts, and what the longest was."""
    said = []
    monkeypatch.setattr(loop_steps, "_TELL_S", 0.001)
    monkeypatch.setattr(loop_steps.log, "info", lambda event, **more: said.append((event, more)), raising=False)
    steps = Steps.kept()
    telling = asyncio.create_task(loop_steps.tell(steps))
    await asyncio.sleep(0)
    steps.add(1 * MS, 1 * MS)
    await asyncio.sleep(0.02)
    assert not said
    steps.add(20 * MS, 3 * MS)
    steps.add(40 * MS, 12 * MS)
    await until(lambda: said)
    telling.cancel()
    ((event, more),) = said
    assert event == "loop_steps"
    assert more["over_10ms"] == 2
    assert more["by_bound_ms"] == {"50": 2}
    assert more["own_over_10ms"] == 1
    assert more["own_max_ms"] == pytest.approx(12, rel=0.13)


def test_a_service_counts_its_own_steps(tmp_path):
    """Whatever it does: here one blocks for 50 ms, and the file says so."""
    file = tmp_path / "own.steps"
    program = (
        "import time; from foliot.runtime.service import run\n"
        "async def main():\n time.sleep(0.05)\n"
        "run('toy', main)"
    )  # fmt: skip
    subprocess.run(
        [sys.executable, "-c", program], check=False,
        env={"FOLIOT_TELEMETRY__LOOP_STEPS": str(file), "FOLIOT_CONFIG": ""}
    )  # fmt: skip
    assert read(file).took.long >= 1
    assert json.dumps(read(file).took.by_bound())
