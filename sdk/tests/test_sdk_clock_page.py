"""The page that has a node's time: what is written there is what is read, whole, and by whom it may be written."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import zlib

import msgspec
import pytest
from hypothesis import strategies as st
from paged import SECOND, local, state

from foliot.clock import ClockUnknown
from foliot.clock.page import ADDED, ADDED_AT, ADDED_END, CHECKSUM, SLOT, SLOT_SIZE, SLOTS, Page
from foliot.clock.writer import PageWriter
from patience import patience


def test_what_is_written_is_read(place, writer, reader):
    """All of the state, and the time that it comes to."""
    said = state()
    writer.write(said, local())
    before = said.reference_ns(local())
    interval = reader.now()
    after = said.reference_ns(local())
    reading = reader.read()

    assert before - 200 <= interval.earliest_ns < interval.latest_ns <= after + 200
    assert (reading.state, reading.clock, reading.trusted) == (said, "node3", True)


FINITE = st.floats(0, 1e6)


def test_nobody_ever_reads_half_a_word(place, writer):
    """A writer and, in processes of their own, readers at full speed: all numbers of a reading belong together."""
    said = state(void_after_ns=local() + 3_600 * SECOND)
    writer.write(said, local())
    script = (
        "import sys, time\nfrom foliot.clock.page import Page\n"
        f"page, seen, until = Page(sys.argv[1]), set(), time.monotonic() + {patience(60)}\n"
        "while len(seen) < 500 and time.monotonic() < until:\n"
        "    told = page.latest()\n"
        "    ks = {told.offset_ns - 5_000_000_000, told.hard_bound_ns - 900, told.window - 7, "
        "int(told.surplus_ns - 1.5)}\n"
        "    assert len(ks) == 1, ks\n"
        "    seen |= ks\n"
        "print(len(seen))\n"
    )
    readers = [subprocess.Popen([sys.executable, "-c", script, place], stdout=subprocess.PIPE) for _ in range(2)]
    k = 0
    while any(each.poll() is None for each in readers):
        k += 1
        writer.write(
            msgspec.structs.replace(
                said, offset_ns=5_000_000_000 + k, hard_bound_ns=900 + k, window=7 + k, surplus_ns=1.5 + k
            ),
            1,
        )
    for each in readers:
        output, _ = each.communicate()
        assert each.returncode == 0
        assert int(output) == 500


NOT_ADDED = {
    "utc_offset_s": 0, "tai_offset_s": 0, "leap_s": 0, "leap_at_ns": 0, "utc_offset_error_ns": -1,
    "utc_disagreement": "none", "stamp_noise_ns": 0.0, "rate_wander_ppb": 0.0,
}  # fmt: skip


def test_a_slot_that_is_being_overwritten_is_not_read(place, writer):
    """What has not its checksum is read again, and never believed."""
    writer.write(state(), local())
    page = Page(place)
    slot = SLOTS + SLOT_SIZE * (page.latest().number & 1)
    whole = writer._memory[slot : slot + 600]
    writer._memory[slot + 8 : slot + 16] = b"\1" * 8
    with pytest.raises(ClockUnknown, match="damaged"):
        page.latest()
    writer._memory[slot : slot + 600] = whole

    assert page.latest().window == 7


def test_a_page_of_an_older_probe_is_read(place, writer, reader):
    """It has left empty what stands behind the slot's own checksum: nothing is known of UTC, noise and wander."""
    said = state()
    writer.write(said, local())
    slot = SLOTS + SLOT_SIZE * (Page(place).latest().number & 1)
    assert reader.read().state == said
    writer._memory[slot + ADDED_AT : slot + SLOT_SIZE] = bytes(SLOT_SIZE - ADDED_AT)

    assert reader.read().state == msgspec.structs.replace(said, **NOT_ADDED)


def test_what_was_added_to_another_slot_is_not_read(place, writer, reader):
    """An older probe that goes on in a later one's page leaves the added part as it was."""
    said = state()
    writer.write(said, local())
    slot = SLOTS + SLOT_SIZE * (Page(place).latest().number & 1)
    stale = ADDED.pack(1, 36, 35, 0, 0, 9, 99.0, 99.0, 0)
    writer._memory[slot + ADDED_AT : slot + ADDED_END] = stale + CHECKSUM.pack(zlib.crc32(stale))

    assert reader.read().state == msgspec.structs.replace(said, **NOT_ADDED)


def test_an_older_reader_finds_its_slot_as_ever(place, writer):
    """Its fields and their checksum lie where they lay; only an unknown name of a time scale makes it refuse."""
    writer.write(state(timescale="utc"), local())
    slot = SLOTS + SLOT_SIZE * (Page(place).latest().number & 1)
    first = bytes(writer._memory[slot : slot + 1_152])

    assert CHECKSUM.unpack_from(writer._memory, slot + 1_152)[0] == zlib.crc32(first)
    assert SLOT.unpack(first)[16] == 2


def test_what_is_said_of_utc_has_a_checksum_too(place, writer):
    """A byte that is wrong there makes the slot one that is read again."""
    writer.write(state(), local())
    page = Page(place)
    slot = SLOTS + SLOT_SIZE * (page.latest().number & 1)
    writer._memory[slot + ADDED_AT + 8] ^= 1
    with pytest.raises(ClockUnknown, match="damaged"):
        page.latest()


def test_a_writer_that_dies_in_the_middle_disturbs_nobody(place, writer, reader):
    """It fills the slot that nobody reads yet."""
    writer.write(state(), local())
    spare = SLOTS + SLOT_SIZE * ((Page(place).latest().number + 1) & 1)
    writer._memory[spare : spare + 700] = b"\xff" * 700

    assert reader.now()
    assert reader.read().state.window == 7


def test_everybody_reads_and_only_the_probe_writes(tmp_path):
    """Whatever its umask, and also for a user who is nobody."""
    folder = tmp_path / "new"
    old = os.umask(0o077)
    try:
        writer = PageWriter(str(folder / "clock"), "node3")
    finally:
        os.umask(old)
    writer.write(state(), local())
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (folder, folder / "clock", folder / ".clock.lock")]
    writer.close()

    assert modes == [0o755, 0o644, 0o600]
    assert sorted(path.name for path in folder.iterdir()) == [".clock.lock", "clock"]


def test_two_probes_do_not_write_one_page(writer, place):
    """By turns they would say what is true of two clocks."""
    with pytest.raises(OSError, match="another probe"):
        PageWriter(place, "node4")
    writer.close()
    PageWriter(place, "node3").close()


def test_a_page_is_not_written_through_a_link(tmp_path):
    """What somebody put there before is not followed, but replaced."""
    victim = tmp_path / "victim"
    victim.write_text("mine")
    for name in ("clock", ".clock.new"):
        (tmp_path / name).symlink_to(victim)
    PageWriter(str(tmp_path / "clock"), "node3").close()

    assert victim.read_text() == "mine"
    assert not (tmp_path / "clock").is_symlink()
