"""The time that a probe shares with the other processes of its node.

A real probe, a real bus, and a reader beside them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time

import msgspec
import pytest
import structlog

from foliot.clock import ClockUnknown, HostClock, Reader
from foliot_probe.io.clock_outputs import ClockOutputs
from foliot_probe.settings import ProbeSettings
from foliot_schemas import ClockState
from foliot_schemas.subjects import CLOCK, CLOCKS
from patience import patience

AHEAD_NS = 3_600 * 10**9


def said(name="node0", **changes):
    """What sync says: the reference is an hour ahead of this host's own time."""
    clock = HostClock(name)
    local_ns = clock.local_ns()
    known = {
        "clock": name, "reference": "node1", "offset_ns": clock.epoch_ns() + AHEAD_NS, "drift_ppb": 0.0, "hard_bound_ns": 500,
        "bound_ns": 50, "growth_ppb": 0.0, "as_of_ns": local_ns, "void_after_ns": local_ns + 600 * 10**9, "status": "synchronised",
    }  # fmt: skip
    return ClockState(**{**known, **changes})


async def start_probe(url, folder):
    """A probe as its own process, which writes its page into the folder."""
    (folder / "node0.toml").write_text(
        f'[bus]\nurl = "{url}"\n[telemetry]\nendpoint = ""\n[clock]\npage = "{folder}/shared/clock"\n'
        '[node]\nname = "node0"\nindex = 0\npath_prefix = "127.64.0.0/10"\nentropies = [1]\nprobe_port = 17946\n'
        '[[node.nics]]\nrail = "rail0"\nnumber = 0\ndevice = "lo"\naddress = "127.0.1.1"\n'
    )
    environment = {key: value for key, value in os.environ.items() if key != "FOLIOT_CLOCK__PAGE"}
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "foliot_probe", env={**environment, "FOLIOT_CONFIG": str(folder / "node0.toml")}
    )


def why(reader):
    """Why there is no time; empty: there is."""
    try:
        reader.now()
    except ClockUnknown as unknown:
        return unknown.why
    return ""


@pytest.mark.nats
async def test_any_process_reads_what_the_probe_heard(bus_settings, bus, tmp_path, until):
    """From the first word of sync on, over a probe's death and return, until sync says that it is not so any more."""
    probe = await start_probe(bus_settings.url, tmp_path)
    reader = Reader(str(tmp_path / "shared/clock"))
    try:
        assert why(reader) in {"no-page", "unsynchronised"}
        await until(lambda: why(reader) == "unsynchronised")
        await bus.put(CLOCKS, "node1", said("node1"))
        await bus.put(CLOCKS, "node0", said())

        async def speak_until(reason, **changes):
            # The bus forgets what nobody has subscribed to yet.
            while why(reader) != reason:
                await bus.publish(CLOCK, said(**changes), "node0")
                await asyncio.sleep(0.05)

        async with asyncio.timeout(patience(60)):
            await speak_until("")
        before_ns, read_ns, after_ns = time.time_ns(), reader.now().middle_ns - AHEAD_NS, time.time_ns()
        assert before_ns - 10**9 < read_ns < after_ns + 10**9

        probe.kill()
        await probe.wait()
        assert why(reader) == ""
        probe = await start_probe(bus_settings.url, tmp_path)
        async with asyncio.timeout(patience(60)):
            await speak_until("disrupted", status="disrupted")
    finally:
        with contextlib.suppress(ProcessLookupError):
            probe.send_signal(signal.SIGTERM)
        code = await probe.wait()
    assert code == 0


def test_a_page_that_cannot_be_written_stops_no_probe(tmp_path, monkeypatch):
    """It is said, with the reason, and measuring goes on."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FOLIOT_CLOCK__PAGE", str(tmp_path / "file/clock"))
    with structlog.testing.capture_logs() as logs:
        outputs = ClockOutputs(HostClock("node0"), ProbeSettings())
    outputs.take(said())
    outputs.close()

    assert [(each["event"], each["reason"]) for each in logs] == [("clock_page_not_written", "Not a directory")]


def test_nothing_is_told_of_other_clocks(tmp_path, monkeypatch):
    """A probe hears of its peers' as well."""
    monkeypatch.setenv("FOLIOT_CLOCK__PAGE", str(tmp_path / "clock"))
    outputs = ClockOutputs(HostClock("node0"), ProbeSettings())
    outputs.take(said("node1"))
    assert why(Reader(str(tmp_path / "clock"))) == "unsynchronised"
    outputs.take(said())
    assert why(Reader(str(tmp_path / "clock"))) == ""
    outputs.close()


@pytest.mark.parametrize(
    ("timescale", "leap_in_s", "behind_s", "leap_s"),
    [("free", 60, 0, 0), ("utc", 60, 5, 1), ("utc", -60, 6, 0), ("tai", 60, 5, 1)],
)
def test_a_daemon_is_given_utc(timescale, leap_in_s, behind_s, leap_s):
    """Made of the common time where that follows UTC or TAI, with the leap second that is to come.

    Else the common time as it is.
    """
    clock = HostClock("node0")
    state = said(timescale=timescale, utc_offset_s=5, leap_s=1)
    leap_at_ns = state.reference_ns(state.as_of_ns) + leap_in_s * 10**9
    clock.update(msgspec.structs.replace(state, leap_at_ns=leap_at_ns))
    moment = clock.moment()

    assert moment.utc_ns - moment.realtime_ns == pytest.approx(AHEAD_NS - behind_s * 10**9, abs=10**6)
    assert moment.leap_s == leap_s
