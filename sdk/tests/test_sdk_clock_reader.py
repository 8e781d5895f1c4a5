"""Who reads a node's time has it with its bounds, or the reason why there is none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from paged import FAR, SECOND, local, state, why

import foliot.clock
from foliot.clock import ClockUnknown, Interval, Reader
from foliot.clock import page as clock_page
from foliot.clock import reader as clock_reader
from foliot.clock import writer as clock_writer
from foliot.clock.page import SIZE
from foliot.clock.writer import PageWriter
from foliot.settings import ClockSettings

FINITE = st.floats(0, 1e6)


@given(
    offset=st.integers(-(2**61), 2**61), drift=st.floats(-1e6, 1e6), bound=st.integers(0, 10**9), growth=FINITE,
    wander=FINITE, hard=st.integers(0, 10**9), hard_growth=FINITE, age=st.integers(-(10**10), 10**12),
)  # fmt: skip
def test_a_reader_says_what_sync_said(
    tmp_path_factory, *, offset, drift, bound, growth, wander, hard, hard_growth, age
):
    """Time and both bounds are those of `ClockState`, at any age, rounded to the outside."""
    place = tmp_path_factory.mktemp("page") / "clock"
    as_of = 10**14
    said = state(
        offset_ns=offset, drift_ppb=drift, bound_ns=bound, growth_ppb=growth, wander_ppb=wander, hard_bound_ns=hard,
        hard_growth_ppb=hard_growth, as_of_ns=as_of, void_after_ns=as_of + 10**13,
    )  # fmt: skip
    writer = PageWriter(str(place), "node3")
    try:
        writer.write(said, as_of)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(clock_reader, "clock_gettime_ns", lambda _clock: as_of + age)
            reader = Reader(str(place))
            soft, certain = reader.now(), reader.now(hard=True)
    finally:
        writer.close()
    at = said.reference_ns(as_of + age)
    for interval, expected in ((soft, said.bound_at_ns(as_of + age)), (certain, said.hard_bound_at_ns(as_of + age))):
        # Floats have 53 bits; what is not rounded twice is within a nanosecond.
        slack = 2 + expected * 1e-12
        assert abs(interval.middle_ns - at) <= slack
        assert 0 <= interval.bound_ns - expected + 1 <= 1 + slack


def test_a_new_word_is_seen_at_the_next_call(writer, reader):
    """Without looking whether the page was replaced."""
    writer.write(state(), local())
    before = reader.now()
    writer.write(state(offset_ns=8_000_000_000), local())

    assert reader.now().earliest_ns - before.latest_ns > 2 * SECOND


@pytest.mark.parametrize("status", ["disrupted", "unsynchronised"])
def test_what_sync_does_not_stand_by_is_no_time(writer, reader, status):
    """Also for a reader that had the time a moment before."""
    writer.write(state(), local())
    reader.now()
    writer.write(state(status=status), local())

    assert why(reader) == status


def test_a_word_is_void_after_its_time(writer, reader, monkeypatch):
    """When sync, the bus or the probe has been away for too long; holdover holds until then."""
    said = state(status="holdover")
    writer.write(said, local())
    assert reader.now()
    monkeypatch.setattr(clock_reader, "clock_gettime_ns", lambda _clock: said.void_after_ns + 1)

    assert why(reader) == "void"


@pytest.mark.parametrize("changes", [{"bound_ns": -1}, {"bound_ns": FAR}, {"growth_ppb": 1e308}])
def test_a_bound_that_promises_nothing_is_no_bound(writer, reader, changes):
    """Whatever the status says."""
    writer.write(state(**changes), local())

    assert why(reader) == "unsynchronised"


@pytest.mark.parametrize("bound", [-1, FAR])
def test_who_asks_for_the_hard_bound_gets_no_other(writer, reader, bound):
    """The statistical one may be there when the hard one is not."""
    writer.write(state(hard_bound_ns=bound), local())

    assert reader.now()
    with pytest.raises(ClockUnknown, match="hard"):
        reader.now(hard=True)


def test_before_sync_has_spoken_there_is_no_time(writer, reader):
    """The page is there from the probe's start."""
    assert why(reader) == "unsynchronised"
    assert reader.read().state is None


def test_without_a_page_the_reason_is_said(reader, place, monkeypatch):
    """No probe, or no setting."""
    assert why(reader) == "no-page"
    monkeypatch.setenv("FOLIOT_CLOCK__PAGE", "")
    assert why(Reader()) == "no-page"
    monkeypatch.delenv("FOLIOT_CLOCK__PAGE")
    assert clock_reader._configured() == ClockSettings().page
    monkeypatch.setenv("FOLIOT_CLOCK__PAGE", place)
    with pytest.raises(ClockUnknown, match="is not there"):
        Reader().now()


@pytest.mark.parametrize("content", [b"", b"x" * SIZE, bytes(SIZE - 1), b"FOLIOTck\x02\0\0\0" + bytes(SIZE - 12)])
def test_what_is_no_page_is_not_read(tmp_path, content):
    """Another file, a short one, another version."""
    (tmp_path / "clock").write_bytes(content)

    assert why(Reader(str(tmp_path / "clock"))) == "foreign"


def test_a_page_of_another_boot_or_time_namespace_is_not_believed(writer, place, monkeypatch):
    """Local time began anew, or is another."""
    writer.write(state(), local())
    with monkeypatch.context() as other:
        other.setattr(clock_page, "boot", lambda: b"x" * 16)
        assert why(Reader(place)) == "foreign"
    with monkeypatch.context() as other:
        other.setattr(clock_page, "time_namespace", lambda: 5)
        assert why(Reader(place)) == "foreign"
    assert Reader(place).now()


def test_another_time_namespace_is_found(writer, place):
    """As the kernel makes them, for checkpoints say: there CLOCK_MONOTONIC_RAW is shifted."""
    writer.write(state(), local())
    script = f"from foliot.clock import Reader; print(Reader({place!r}).read().why)"
    enter = ["unshare", "--time", "--monotonic", "1000", "--fork"] + ([] if os.geteuid() == 0 else ["--map-root-user"])
    done = subprocess.run([*enter, sys.executable, "-c", script], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no time namespaces here: {done.stderr.strip()}")

    assert done.stdout.strip() == "foreign"


def test_a_suspended_host_has_no_time_until_it_is_measured_anew(writer, reader, monkeypatch):
    """Local time did not count meanwhile, so what was said before is wrong, whenever it arrives."""
    awake_ns = clock_page.slept_ns()
    said = state()
    writer.write(said, local())
    assert reader.now()
    for module in (clock_reader, clock_writer):
        monkeypatch.setattr(module, "slept_ns", lambda: awake_ns + 5 * SECOND)
    writer.write(said, local())
    assert why(reader) == "slept"
    writer.write(state(), local())

    assert reader.now()


def test_a_state_that_is_dated_anew_is_no_measurement_of_a_host_that_slept(writer, reader, monkeypatch):
    """Where the reference or the leader changes, sync states a clock's last measurement as of another time.

    It is void when it was.
    """
    awake_ns = clock_page.slept_ns()
    said = state()
    writer.write(said, local())
    for module in (clock_reader, clock_writer):
        monkeypatch.setattr(module, "slept_ns", lambda: awake_ns + 5 * SECOND)
    for later_ns in (0, SECOND, 2 * SECOND):
        writer.write(msgspec.structs.replace(said, as_of_ns=local() + later_ns), local())
        assert why(reader) == "slept"
    measured = state()
    for later_ns in (0, SECOND):
        writer.write(msgspec.structs.replace(measured, as_of_ns=measured.as_of_ns + later_ns), local())
        assert reader.now()


def test_a_probe_that_starts_again_is_followed(place, reader, monkeypatch):
    """Its page is another file; what the first left stands until sync speaks.

    Readers change over in a fraction of a second.
    """
    now_ns = local()
    monkeypatch.setattr(clock_reader, "clock_gettime_ns", lambda _clock: now_ns)
    first = PageWriter(place, "node3")
    first.write(state(as_of_ns=now_ns), now_ns)
    known = reader.now()
    first.close()
    second = PageWriter(place, "node3")
    assert reader.now() == known
    assert Reader(place).read().state.window == 7
    second.write(state(offset_ns=9_000_000_000, as_of_ns=now_ns), now_ns)
    now_ns += SECOND

    assert reader.now().earliest_ns - known.latest_ns > 4 * SECOND
    second.close()


def test_what_another_clock_had_said_does_not_stand(place, writer):
    """A node that got another name, or a page that is damaged."""
    writer.write(state(), local())
    writer.close()
    other = PageWriter(place, "node4")

    assert Reader(place).read().state is None
    other.close()


def test_a_page_that_is_gone_holds_until_it_is_void(writer, place, reader, monkeypatch):
    """A probe that was stopped takes its folder along; its last word is still good."""
    writer.write(state(), local())
    reader.now()
    Path(place).unlink()
    later = local() + SECOND
    monkeypatch.setattr(clock_reader, "clock_gettime_ns", lambda _clock: later)
    assert reader.now()

    assert why(Reader(place)) == "no-page"


def test_waiting_ends_with_a_time(writer, reader):
    """At a start, services come up in any order, and a bound is wide before it is narrow."""
    with pytest.raises(ClockUnknown) as unknown:
        reader.wait(0)
    assert unknown.value.why == "unsynchronised"
    writer.write(state(bound_ns=10_000), local())
    assert reader.wait(0).bound_ns >= 10_000
    with pytest.raises(ClockUnknown, match="not within 1000 ns") as unknown:
        reader.wait(0.01, within_ns=1_000)
    assert unknown.value.why == "wide"
    writer.write(state(growth_ppb=0.0, wander_ppb=0.0), local())
    assert reader.wait(60, within_ns=1_000)


def test_two_moments_are_ordered_when_it_is_certain():
    """Where intervals meet, neither came first for certain."""
    one, other, between = Interval(10, 20), Interval(21, 30), Interval(15, 25)

    assert one.before(other)
    assert other.after(one)
    assert not any((one.before(between), one.after(between), between.before(other), one.before(one)))
    assert (between.middle_ns, between.bound_ns) == (20, 5)


def test_readers_load_little():
    """Who only wants the time loads neither numpy nor what messages and settings need."""
    # Whether or not a probe of this host's has written a page.
    script = (
        "import sys, contextlib, foliot.clock as c\n"
        "with contextlib.suppress(c.ClockUnknown): c.now()\n"
        "print([m for m in ('numpy', 'nats', 'msgspec') if m in sys.modules])"
    )
    environment = {key: value for key, value in os.environ.items() if not key.startswith("FOLIOT_")}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"
    assert foliot.clock.now == clock_reader.now
