"""Turns on the stamps of NICs (SIOCSHWTSTAMP of linux/net_tstamp.h), and puts back what was there."""

from __future__ import annotations

import asyncio
import ctypes
import fcntl
import os
import socket
import struct
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import structlog

from foliot.node import ethtool
from foliot_agent.kernel.dry_run import Change

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

log = structlog.get_logger()

_SIOCSHWTSTAMP, _SIOCGHWTSTAMP = 0x89B0, 0x89B1
_CONFIG = struct.Struct("iii")  # struct hwtstamp_config: flags, tx_type, rx_filter
_LOOK_S = 60.0
"""The pause between two looks: a device that was made anew, or whose driver was loaded again, has forgotten."""
_RECORD = "nic-stamps.json"
_FOLDERS = ("/run/foliot-agent", "/run/foliot")
"""Where an agent keeps its record: that of the unit, and that of the settings' default."""


class StampSetting(msgspec.Struct, frozen=True):
    """What a NIC stamps."""

    tx_type: int
    rx_filter: int

    def __str__(self) -> str:
        """In words of `hwstamp_ctl`."""
        return f"tx {self.tx_type}, rx {self.rx_filter}"


OFF, ALL = StampSetting(0, 0), StampSetting(1, 1)
"""HWTSTAMP_TX_OFF and HWTSTAMP_FILTER_NONE; HWTSTAMP_TX_ON and HWTSTAMP_FILTER_ALL."""


class Changed(msgspec.Struct, frozen=True):
    """A NIC that was changed."""

    index: int
    """The kernel's number of the device: one that was made anew has another."""
    before: StampSetting
    granted: StampSetting | None = None
    """What the driver made of the wish; None: it has not answered yet, or the agent ended in between."""
    taken: bool = False
    """Somebody has set it to something else since: it is theirs."""


class Wish(NamedTuple):
    """What is to be done with a NIC."""

    turn_on: bool
    """Whether to ask for all stamps."""
    reason: str = ""
    """Why it is left alone; empty: it is not, or needs nothing."""


def is_ours(now: StampSetting, changed: Changed) -> bool:
    """Whether a NIC's setting is what the agent made it. One that ended in between had asked for `ALL`."""
    return not changed.taken and now == (changed.granted or ALL)


def wish(now: StampSetting, index: int, changed: Changed | None) -> Wish:
    """What is to be done with a NIC, by its setting and what was done to it before."""
    if changed is not None and changed.index == index:
        if changed.granted is None and not changed.taken and now == changed.before:
            return Wish(turn_on=True)
        if not is_ours(now, changed):
            return Wish(turn_on=False, reason=f"somebody has set it since ({now})")
        return Wish(turn_on=False)
    if now == OFF:
        return Wish(turn_on=True)
    return Wish(turn_on=False, reason="it is on already" if now == ALL else f"another uses it ({now})")


def _seen(device: str) -> tuple[StampSetting, int]:
    return read(device), socket.if_nametoindex(device)


def read(device: str) -> StampSetting:
    """A NIC's setting.

    Raises:
        OSError: it has none, or its driver does not say.
    """
    return _ask(device, _SIOCGHWTSTAMP, OFF)


def write(device: str, wanted: StampSetting) -> StampSetting:
    """Sets a NIC's setting, and returns what its driver made of it: it may stamp more than was wanted.

    Raises:
        OSError: it cannot, or it may not be set.
    """
    return _ask(device, _SIOCSHWTSTAMP, wanted)


def _ask(device: str, request: int, setting: StampSetting) -> StampSetting:
    answer = ctypes.create_string_buffer(_CONFIG.pack(0, setting.tx_type, setting.rx_filter), _CONFIG.size)
    asked = struct.pack("16sP16x", device.encode(), ctypes.addressof(answer))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as by:
        fcntl.ioctl(by, request, asked)
    _, tx_type, rx_filter = _CONFIG.unpack(answer.raw)
    return StampSetting(tx_type, rx_filter)


class NicStamping:
    """The stamps of this node's NICs.

    What was there before is kept in a file, so that it can be put back by whoever takes the node away. It outlives the
    agent and not the boot, as the setting does.

    Parameters:
        folder: of the file, see `agent.memory`; empty: nothing can be put back, so nothing is changed.
        devices: the NICs'.
    """

    def __init__(self, folder: str, devices: Iterable[str]) -> None:
        self._path = Path(folder, _RECORD) if folder else None
        self._devices = tuple(devices)
        self._told: dict[str, str] = {}

    async def keep(self) -> None:
        """Turns the stamps on, and looks again each minute, forever."""
        while self._path is not None:
            await asyncio.to_thread(self.turn_on)
            await asyncio.sleep(_LOOK_S)

    def rehearse(self) -> tuple[Change, ...]:
        """The changes that `turn_on` would make now."""
        known, changes = {} if self._path is None else _recorded(self._path), []
        for device in self._devices if self._path is not None else ():
            try:
                if self._could(device) and wish(*_seen(device), known.get(device)).turn_on:
                    changes.append(_change(device, ALL))
            except OSError:
                continue
        return tuple(changes)

    def turn_on(self) -> None:
        """Asks for the stamps of all packets, where a NIC has them to give and nobody else uses it."""
        assert self._path is not None
        known = _recorded(self._path)
        changed = dict(known)
        for device in self._devices:
            try:
                self._turn_on(device, changed)
            except OSError as error:
                self._tell(device, error.strerror or str(error))
        if changed != known:
            try:
                _record(self._path, changed)
            except OSError as error:  # the next look tries again
                log.warning("memory_not_written", path=str(self._path), reason=error.strerror)

    def _turn_on(self, device: str, changed: dict[str, Changed]) -> None:
        if not self._could(device):
            return
        (now, index), known = _seen(device), changed.get(device)
        wanted = wish(now, index, known)
        if wanted.reason:
            self._tell(device, wanted.reason)
            if known is not None:
                changed[device] = msgspec.structs.replace(known, taken=True)
        elif known is not None and known.index == index and known.granted is None and not wanted.turn_on:
            changed[device] = msgspec.structs.replace(known, granted=now)
        if wanted.turn_on:
            # Kept first: what an agent did that ended in between can be put back.
            asked = {**changed, device: Changed(index, now)}
            assert self._path is not None
            _record(self._path, asked)
            try:
                granted = write(device, ALL)
            except OSError:
                _record(self._path, changed)  # whoever turns it on later is not the agent
                raise
            changed[device] = Changed(index, now, granted)
            log.info("nic_stamps_on", device=device, before=str(now), granted=str(granted))

    def _could(self, device: str) -> bool:
        """Whether a NIC can stamp all packets, by its driver's word."""
        told = ethtool.stamping(device)
        if told is None or not told.hardware or told.phc_index is None:
            self._tell(device, "it cannot stamp")
            return False
        if not (told.transmits and told.receives):
            self._tell(device, "it cannot stamp all packets")
            return False
        return True

    def _tell(self, device: str, reason: str) -> None:
        if self._told.get(device) != reason:
            self._told[device] = reason
            log.info("nic_stamps_left_alone", device=device, reason=reason)


def _change(device: str, setting: StampSetting) -> Change:
    """A change of a NIC's setting, said."""
    detail: dict[str, str | int] = {"tx_type": setting.tx_type, "rx_filter": setting.rx_filter}
    return Change(verb="change", kind="stamps", name=device, detail=detail)


def undo(folder: str, *, dry: bool = False) -> tuple[Change, ...]:
    """Puts back what an agent with this folder has changed, unless somebody else has changed it since.

    Returns:
        the changes that were made, or would be.
    """
    path = Path(folder, _RECORD)
    done = []
    known = _recorded(path)
    for device, changed in known.items():
        try:
            is_same = socket.if_nametoindex(device) == changed.index
            if not is_same or changed.granted == changed.before or not is_ours(read(device), changed):
                continue
            if not dry:
                write(device, changed.before)
        except OSError as error:
            log.warning("nic_stamps_not_put_back", device=device, reason=error.strerror)
            continue
        done.append(_change(device, changed.before))
    if known and not dry:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:  # an agent starts all the same
            log.warning("memory_not_written", path=str(path), reason=error.strerror)
    return tuple(done)


def undo_all(*, dry: bool = False) -> tuple[Change, ...]:
    """The same for any agent of this host: that of the unit, and those by hand."""
    folders = dict.fromkeys((os.environ.get("FOLIOT_AGENT__MEMORY", ""), *_FOLDERS))
    return tuple([change for folder in folders if folder for change in undo(folder, dry=dry)])


def _recorded(path: Path) -> dict[str, Changed]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Changed])
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.MsgspecError, ValueError, RecursionError) as error:
        log.warning("memory_not_read", path=str(path), reason=str(error))
        return {}


def _record(path: Path, changed: Mapping[str, Changed]) -> None:
    """Writes the record whole or not at all.

    Raises:
        OSError: it could not be written.
    """
    fresh = path.with_suffix(".new")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh.write_bytes(msgspec.json.encode(changed))
    fresh.replace(path)
