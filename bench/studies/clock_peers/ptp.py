"""ptp4l as an observer: free running, in software, over unicast UDP.

It corrects no clock, and all hosts have the same one, so its measured offset is its error. It prints a line once a
second at the most. So the bench asks over its management socket, more often than it measures (linuxptp's
``TIME_STATUS_NP``). A servo would take such an offset and smooth it. So the bench shows it both raw and low-passed.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bench.studies.clock_peers.network import DEVICE

if TYPE_CHECKING:
    from pathlib import Path

    from bench.studies.clock_peers.children import Children
    from bench.studies.clock_peers.network import Network

PORTS = (319, 320)
LOW_PASS_S = 2.0
"""As long as Foliot's window."""
_ASKED = 1.5
"""Questions for each measurement, because measurements come at random times. One seen twice counts once."""

# IEEE 1588-2008, 13.3 and 15.4: header, target port, hops, action; then the TLV. 0xC000 is linuxptp's own
# TIME_STATUS_NP.
_HEADER = struct.Struct("!BBHBxHqI8sHHBb8sHBBBxHHH")
_MANAGEMENT, _GET, _RESPONSE, _TLV, _TIME_STATUS = 0x0D, 0, 2, 0x0001, 0xC000
_STATUS = struct.Struct("!qq")
"""The first two fields of its data: the offset, and the arrival of the sync message."""
_EVERYBODY = b"\xff" * 8


class Offset(NamedTuple):
    """An offset that ptp4l has measured."""

    at_s: float
    """Arrival of the master's message, since the epoch."""
    error_ns: float


def server_text(folder: Path, interval: int) -> str:
    """The settings of the host that all measure against; option names of linuxptp 3."""
    return _text(folder, interval, unicast_listen=1, masterOnly=1) + f"[{DEVICE}]\n"


def client_text(folder: Path, server: str, interval: int) -> str:
    """The settings of a host that measures."""
    own = _text(
        folder,
        interval,
        slaveOnly=1,
        tsproc_mode="filter_weight",
        delay_filter="moving_median",
        tx_timestamp_timeout=50,
    )
    table = f"[unicast_master_table]\ntable_id 1\nlogQueryInterval 0\nUDPv4 {server}\n"
    return f"{own}{table}[{DEVICE}]\nunicast_master_table 1\n"


def _text(folder: Path, interval: int, **more: object) -> str:
    settings = {
        "free_running": 1, "time_stamping": "software", "network_transport": "UDPv4", "udp_ttl": 4,
        "logAnnounceInterval": 0,
        "logSyncInterval": interval, "logMinDelayReqInterval": interval,
        # Otherwise the master sends everything a second time, without a receiver.
        "inhibit_multicast_service": 1,
        "uds_address": folder / "socket", **more,
    }  # fmt: skip
    return "\n".join(["[global]", *(f"{name} {value}" for name, value in settings.items())]) + "\n"


async def start(binary: Path, network: Network, children: Children, folder: Path, interval: int) -> dict[str, Path]:
    """Starts a master on the first host and a slave on each other one.

    Returns:
        The slaves' management sockets, by host.
    """
    server, *clients = network.plan.hosts
    for host in network.plan.hosts:
        own = folder / f"ptp-{host}"
        own.mkdir()
        text = (
            server_text(own, interval) if host == server else client_text(own, network.plan.address(server), interval)
        )
        (own / "ptp4l.conf").write_text(text)
        arguments = (str(binary), "-m", "-q", "-f", str(own / "ptp4l.conf"))
        await children.start(f"{host}/ptp4l", arguments, network.namespaces[host])
    return {host: folder / f"ptp-{host}" / "socket" for host in clients}


def question(sequence: int) -> bytes:
    """A management message that asks for TIME_STATUS_NP."""
    return _HEADER.pack(
        _MANAGEMENT, 2, _HEADER.size, 0, 0, 0, 0, bytes(8), 1, sequence & 0xFFFF, 4, 0x7F,
        # No hops: otherwise it would travel to the other hosts as well.
        _EVERYBODY, 0xFFFF, 0, 0, _GET, _TLV, 2, _TIME_STATUS,
    )  # fmt: skip


def parse(answer: bytes) -> Offset | None:
    """The offset in an answer; None: it is no such answer, or nothing has been measured yet."""
    if len(answer) < _HEADER.size + _STATUS.size:
        return None
    fields = _HEADER.unpack_from(answer)
    kind, action, tlv, name = fields[0] & 0x0F, fields[16] & 0x0F, fields[17], fields[19]
    if (kind, action, tlv, name) != (_MANAGEMENT, _RESPONSE, _TLV, _TIME_STATUS):
        return None
    error_ns, ingress_ns = _STATUS.unpack_from(answer, _HEADER.size)[:2]
    return Offset(ingress_ns * 1e-9, float(error_ns)) if ingress_ns else None


class Asking:
    """Asks the slaves of a run until it is closed.

    Parameters:
        sockets: their management sockets, by host.
        interval: as they were started with: 2^interval s between two measurements.
    """

    def __init__(self, sockets: dict[str, Path], interval: int) -> None:
        self.offsets: dict[str, list[Offset]] = {host: [] for host in sockets}
        self._period_s = 2.0**interval / _ASKED
        self._sockets = sockets
        self._open: dict[str, socket.socket] = {}
        self._task = asyncio.get_running_loop().create_task(self._ask())

    async def close(self) -> None:
        """Ends the questions."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        for opened in self._open.values():
            asyncio.get_running_loop().remove_reader(opened)
            opened.close()

    async def _ask(self) -> None:
        sequence = 0
        while True:
            sequence += 1
            for host, path in self._sockets.items():
                if host not in self._open:
                    self._connect(host, path)
                if host in self._open:
                    with contextlib.suppress(OSError):
                        self._open[host].send(question(sequence))
            await asyncio.sleep(self._period_s)

    def _connect(self, host: str, path: Path) -> None:
        opened = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            opened.bind(f"{path}.asks")
            opened.connect(str(path))
        except OSError:  # it has not opened its own yet
            opened.close()
            path.with_name(f"{path.name}.asks").unlink(missing_ok=True)
            return
        self._open[host] = opened
        asyncio.get_running_loop().add_reader(opened, self._hear, host)

    def _hear(self, host: str) -> None:
        with contextlib.suppress(OSError):
            found = parse(self._open[host].recv(1 << 12))
            known = self.offsets[host]
            if found is not None and (not known or known[-1].at_s != found.at_s):
                known.append(found)


def low_passed(offsets: list[Offset]) -> list[Offset]:
    """The running median over the last `LOW_PASS_S`. It begins when that time is full."""
    at_s = np.array([each.at_s for each in offsets])
    error_ns = np.array([each.error_ns for each in offsets])
    first = np.searchsorted(at_s, at_s - LOW_PASS_S, side="right")
    return [
        Offset(float(at_s[last]), float(np.median(error_ns[first[last] : last + 1])))
        for last in range(len(offsets))
        if at_s[last] - at_s[0] >= LOW_PASS_S
    ]
