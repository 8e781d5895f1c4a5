"""The agent turns on the stamps of NICs, leaves those of others alone, and puts back what was there."""

from __future__ import annotations

import ctypes
import errno
import os
import struct

import pytest

from foliot.node import ethtool
from foliot_agent.kernel import nic_stamping
from foliot_agent.kernel.nic_stamping import ALL, OFF, NicStamping, StampSetting, undo, undo_all

GET, SET, ETHTOOL = 0x89B1, 0x89B0, 0x8946
PTP_ALONE = StampSetting(1, 12)
"""As ptp4l sets it: HWTSTAMP_FILTER_PTP_V2_EVENT."""
CAN, CANNOT = (0b11, 0b11), (0b11, 1 << 12)
"""`tx_types` and `rx_filters` of a NIC that can stamp all packets, and of one that can stamp those of PTP."""


class Drivers:
    """The drivers of some NICs, below the kernel's ioctls."""

    def __init__(self):
        self.settings = {"eth2": OFF, "eth3": OFF}
        self.can = {"eth2": CAN, "eth3": CAN}
        self.index = {"eth2": 2, "eth3": 3}
        self.refuses: set[int] = set()
        self.grants: dict[str, StampSetting] = {}
        self.written: list[tuple[str, StampSetting]] = []

    def ioctl(self, _fd, request, asked):
        """As the kernel: an interface's name, and where the data is."""
        name, at = struct.unpack_from("16sP", asked)
        device = name.rstrip(b"\0").decode()
        if request in self.refuses or device not in self.settings:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        if request == ETHTOOL:
            answer = struct.pack("IIiI12xI12x", 0x41, 1 | 2 | 4 | 8 | 16 | 64, 0, *self.can[device])
            ctypes.memmove(at, answer, len(answer))
            return
        if request == SET:
            wanted = StampSetting(*struct.unpack("iii", ctypes.string_at(at, 12))[1:])
            self.written.append((device, wanted))
            self.settings[device] = self.grants.get(device, wanted) if wanted != OFF else OFF
        now = self.settings[device]
        ctypes.memmove(at, struct.pack("iii", 0, now.tx_type, now.rx_filter), 12)


@pytest.fixture
def drivers(monkeypatch):
    """Two NICs that can stamp, and do not."""
    made = Drivers()
    for module in (nic_stamping, ethtool):
        monkeypatch.setattr(module.fcntl, "ioctl", made.ioctl)
    monkeypatch.setattr(nic_stamping.socket, "if_nametoindex", lambda device: made.index[device])
    return made


@pytest.fixture
def stamping(tmp_path):
    """Of both NICs; a new one each time, as after a restart of the agent."""
    return lambda: NicStamping(str(tmp_path), ["eth2", "eth3"])


def test_stamps_are_turned_on_once_and_put_back(drivers, stamping, tmp_path):
    """Over restarts nothing is written again: some drivers stop traffic for a moment when they are set."""
    planned = [str(change) for change in stamping().rehearse()]
    assert planned == [f"change stamps     {device}  tx_type 1 rx_filter 1" for device in ("eth2", "eth3")]
    for _ in range(3):
        each = stamping()
        each.turn_on()
        each.turn_on()
    assert stamping().rehearse() == ()
    assert drivers.written == [("eth2", ALL), ("eth3", ALL)]
    planned = [str(change) for change in undo(str(tmp_path), dry=True)]
    assert planned == [f"change stamps     {device}  tx_type 0 rx_filter 0" for device in ("eth2", "eth3")]
    assert drivers.settings == {"eth2": ALL, "eth3": ALL}
    assert len(undo(str(tmp_path))) == 2
    assert drivers.settings == {"eth2": OFF, "eth3": OFF}
    assert undo(str(tmp_path)) == ()


@pytest.mark.parametrize("theirs", [PTP_ALONE, ALL])
def test_a_nic_that_somebody_else_uses_is_left_alone(drivers, stamping, tmp_path, theirs):
    """ptp4l wants what it has set, and it is not put back to what it never was."""
    drivers.settings["eth2"] = theirs
    stamping().turn_on()
    undo(str(tmp_path))
    assert [device for device, _ in drivers.written] == ["eth3", "eth3"]
    assert drivers.settings == {"eth2": theirs, "eth3": OFF}


@pytest.mark.parametrize("theirs", [PTP_ALONE, OFF])
def test_whoever_sets_a_nic_later_has_it(drivers, stamping, tmp_path, theirs):
    """Until it is made anew: it is neither turned on again nor put back."""
    stamping().turn_on()
    drivers.settings["eth2"] = theirs
    for _ in range(3):
        stamping().turn_on()
    assert drivers.settings["eth2"] == theirs
    undo(str(tmp_path), dry=True)
    undo(str(tmp_path))
    assert drivers.settings == {"eth2": theirs, "eth3": OFF}


def test_a_device_that_was_made_anew_is_turned_on_again(drivers, stamping, tmp_path):
    """Its driver has forgotten. What somebody had set on the one before is past, too."""
    stamping().turn_on()
    drivers.settings["eth2"], drivers.index["eth2"] = OFF, 9
    stamping().turn_on()
    assert drivers.settings["eth2"] == ALL
    assert len(undo(str(tmp_path))) == 2


def test_what_a_driver_grants_instead_is_what_is_put_back(drivers, stamping, tmp_path):
    """It may stamp more than was asked for, or less; the probe sees what comes of it."""
    drivers.grants["eth2"] = StampSetting(1, 14)
    stamping().turn_on()
    stamping().turn_on()
    assert drivers.written.count(("eth2", ALL)) == 1
    undo(str(tmp_path))
    assert drivers.settings["eth2"] == OFF


def test_an_agent_that_ended_in_between_has_done_nothing_that_stays(drivers, stamping, tmp_path):
    """Whether the driver was asked or not."""
    drivers.refuses.add(SET)
    stamping().turn_on()
    assert undo(str(tmp_path)) == ()
    drivers.refuses.clear()
    stamping().turn_on()
    assert drivers.settings["eth2"] == ALL


@pytest.mark.parametrize("again", [True, False], ids=["it starts again", "it does not"])
def test_an_agent_that_ended_once_the_driver_was_asked_can_still_be_undone(
    drivers, stamping, tmp_path, monkeypatch, again
):
    """It had no time to record the answer: what is on is its own all the same."""

    def end(device, wanted):
        write(device, wanted)
        raise KeyboardInterrupt

    write = nic_stamping.write
    with monkeypatch.context() as patch:
        patch.setattr(nic_stamping, "write", end)
        with pytest.raises(KeyboardInterrupt):
            stamping().turn_on()
    assert drivers.settings["eth2"] == ALL
    if again:
        stamping().turn_on()
        assert drivers.written.count(("eth2", ALL)) == 1
    undo(str(tmp_path))
    assert drivers.settings == {"eth2": OFF, "eth3": OFF}


def test_what_somebody_turns_on_after_the_driver_refused_the_agent_is_theirs(drivers, stamping, tmp_path):
    """The agent asked and got nothing, so there is nothing to put back."""
    drivers.refuses.add(SET)
    stamping().turn_on()
    drivers.refuses.clear()
    drivers.settings["eth2"] = ALL
    undo(str(tmp_path))
    assert drivers.settings["eth2"] == ALL


def test_a_driver_that_grants_nothing_is_asked_once(drivers, stamping, tmp_path):
    """Not each minute: some stop traffic for a moment."""
    drivers.grants["eth2"] = OFF
    for _ in range(3):
        stamping().turn_on()
    assert drivers.written.count(("eth2", ALL)) == 1
    undo(str(tmp_path))
    assert ("eth2", OFF) not in drivers.written


@pytest.mark.parametrize("lacks", ["all packets", "reading", "stamps"])
def test_a_nic_that_cannot_is_left_alone(drivers, stamping, lacks):
    """One that stamps packets of PTP alone, one of which nobody can tell who uses it, and one without any driver's word."""
    if lacks == "all packets":
        drivers.can = dict.fromkeys(drivers.can, CANNOT)
    else:
        drivers.refuses.add({"reading": GET, "stamps": ETHTOOL}[lacks])
    stamping().turn_on()
    assert drivers.written == []


def test_a_record_that_is_broken_is_no_record(drivers, stamping, tmp_path):
    """What is on then is somebody's."""
    stamping().turn_on()
    (tmp_path / "nic-stamps.json").write_text("[")
    assert undo(str(tmp_path)) == ()
    stamping().turn_on()
    assert drivers.written == [("eth2", ALL), ("eth3", ALL)]


def test_a_node_that_leaves_finds_the_record_of_its_agent(drivers, tmp_path, monkeypatch):
    """Of the unit's, and of one by hand; the variable of the unit names another folder."""
    monkeypatch.setattr(nic_stamping, "_FOLDERS", (str(tmp_path / "unit"),))
    monkeypatch.setenv("FOLIOT_AGENT__MEMORY", str(tmp_path / "hand"))
    NicStamping(str(tmp_path / "unit"), ["eth2"]).turn_on()
    NicStamping(str(tmp_path / "hand"), ["eth3"]).turn_on()
    assert len(undo_all(dry=True)) == 2
    assert len(undo_all()) == 2
    assert drivers.settings == {"eth2": OFF, "eth3": OFF}


async def test_without_a_memory_nothing_is_changed(drivers):
    """As it could not be put back."""
    await NicStamping("", ["eth2"]).keep()
    assert drivers.written == []


def test_the_kernel_itself_says_that_loopback_cannot(tmp_path):
    """By the real ioctls."""
    with pytest.raises(OSError, match="not supported"):
        nic_stamping.read("lo")
    with pytest.raises(OSError, match=r"not (supported|permitted)"):
        nic_stamping.write("lo", OFF)
    NicStamping(str(tmp_path), ["lo"]).turn_on()
    assert not (tmp_path / "nic-stamps.json").exists()
