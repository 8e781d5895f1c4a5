"""FRR's bfdd, one for each host or leaf, each with files of its own; and the reader of its logs.

bfdd needs neither vtysh nor mgmtd. It needs zebra only for sessions that name an interface, because it hears of
interfaces from zebra alone. Both insist that the vty group they were built with exists. Only the installed package
makes that group. So they are shown an ``/etc/group`` that has one, in mount namespaces of their own.
"""

from __future__ import annotations

import datetime as dt
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bench.document import program
from bench.studies.failover_peers.stage import PeerError, until

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bench.studies.clock_peers.children import Children
    from foliot_lab.fabric.namespaces import Namespace

ONE_HOP_PORT, MULTI_HOP_PORT = 3784, 4784
"""Ports of RFC 5881 and RFC 5883."""
MULTIPLIER = 3
_ZEBRA_S = 5.0
_LEAST_TTL = 250
"""The least TTL that a session accepts. Two hosts of one leaf have 254, bfdd's default; through leaf, spine and leaf
it is 252."""
_FETCH = (
    "mkdir -p {folder} && cd {folder} && apt-get download frr libyang2 libc-ares2 && "
    "for each in *.deb; do dpkg-deb -x $each .; done"
)
_CHANGE = re.compile(
    r"(?P<at>\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{6}) .*state-change: "
    r"\[mhop:(?:yes|no) peer:(?P<peer>\S+) local:(?P<local>\S+) [^]]*\]"
    r" (?P<was>\S+) -> (?P<state>\S+)(?: reason:(?P<reason>\S+))?"
)
_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - its time zone is that of the log, which is started with UTC


class Ends(NamedTuple):
    """The two addresses of a session, as one of its ends has them."""

    local: str
    peer: str


class Change(NamedTuple):
    """A session's new state, as one end wrote it down."""

    at_ns: int
    """CLOCK_REALTIME, in whole microseconds, read by bfdd when it wrote."""
    ends: Ends
    was: str
    state: str
    reason: str
    """The reason. control-expired: it heard nothing for the detection time. neighbor-signaled: the other end said
    so."""


def find(unpacked: Path) -> Path:
    """The program, unpacked or installed.

    Raises:
        PeerError: there is none.
    """
    for place in (unpacked.absolute(), Path("/")):
        if (binary := place / "usr/lib/frr/bfdd").exists():
            return binary
    raise PeerError(f"There is no bfdd (frr). Without installing it: {_FETCH.format(folder=unpacked)}")


def version(unpacked: Path) -> str | None:
    """The version of bfdd, by its own word; None: there is none."""
    try:
        binary = find(unpacked)
    except PeerError:
        return None
    return program(binary, "--version", environment=_environment(binary))


def text(
    log: Path, sessions: Iterable[Ends], interval_ms: int, *, multihop: bool, devices: Mapping[str, str] | None = None
) -> str:
    """The settings of one bfdd.

    Parameters:
        devices: of local addresses, for sessions that name theirs; None: they name addresses alone.
    """
    named = {local: f" interface {device}" for local, device in (devices or {}).items()}
    lines = [f"log file {log} debugging", "log timestamp precision 6", "debug bfd peer", "bfd"]
    for ends in sessions:
        lines += [
            f" peer {ends.peer} {'multihop ' if multihop else ''}local-address {ends.local}{named.get(ends.local, '')}",
            f"  detect-multiplier {MULTIPLIER}",
            f"  receive-interval {interval_ms}",
            f"  transmit-interval {interval_ms}",
            *([f"  minimum-ttl {_LEAST_TTL}"] if multihop else []),
            " exit",
        ]
    return "\n".join([*lines, "exit", ""])


class Launcher(NamedTuple):
    """The settings that all bfdd of a run share."""

    binary: Path
    children: Children
    folder: Path
    interval_ms: int
    multihop: bool
    devices: Mapping[str, str] | None = None
    """Devices of local addresses. Sessions name them, and zebra runs beside each bfdd."""

    async def start(self, owner: str, namespace: Namespace, sessions: Sequence[Ends]) -> Path:
        """Starts one bfdd in a namespace; returns the log of its sessions' states."""
        own = self.folder / owner
        shutil.rmtree(own, ignore_errors=True)
        own.mkdir(parents=True)
        log = own / "states.log"
        (own / "bfdd.conf").write_text(
            text(log, sessions, self.interval_ms, multihop=self.multihop, devices=self.devices)
        )
        environment = _environment(self.binary)
        if self.devices is not None:
            (own / "zebra.conf").touch()
            # It is told of no route. So it makes none, and removes none when it ends.
            zebra = _command(self.binary.with_name("zebra"), own, "--retain")
            await self.children.start(f"{owner}/zebra", zebra, namespace, environment)
            await until((own / "zebra.socket").exists, _ZEBRA_S)
        bfdd = _command(self.binary, own, f"--bfdctl {own}/control")
        await self.children.start(f"{owner}/bfdd", bfdd, namespace, environment)
        return log


def _command(binary: Path, own: Path, more: str) -> tuple[str, ...]:
    name = binary.name
    groups = own / "group"
    groups.write_text("root:x:0:\nfrrvty:x:0:\n")
    own_files = (
        f"-f {own}/{name}.conf -i {own}/{name}.pid --vty_socket {own} -z {own}/zebra.socket {more} -u root -g root -P 0"
    )
    shell = 'mount --bind "$1" /etc/group && shift && exec "$@"'
    return ("unshare", "--mount", "sh", "-c", shell, "sh", str(groups), str(binary), *own_files.split())


def _environment(binary: Path) -> dict[str, str]:
    """The environment of the program: its libraries lie beside it, and its times are UTC."""
    libraries = [path.parent for path in binary.parents[1].glob("*/frr/libfrr.so.0")]
    folders = [str(folder) for library in libraries for folder in (library, library.parent)]
    return {"LD_LIBRARY_PATH": ":".join(folders), "TZ": "UTC"}


def parse(lines: Iterable[str]) -> list[Change]:
    """The changes of state in lines of a log; all other lines are left out."""
    found = []
    for line in lines:
        match = _CHANGE.match(line)
        if match is None:
            continue
        since = dt.datetime.strptime(match["at"], "%Y/%m/%d %H:%M:%S.%f") - _EPOCH  # noqa: DTZ007 - as of _EPOCH
        ends = Ends(match["local"], match["peer"])
        at_ns = since // dt.timedelta(microseconds=1) * 1000
        found.append(Change(at_ns, ends, match["was"], match["state"], match["reason"] or ""))
    return found


class Logs:
    """The logs of several bfdd, read continuously.

    Parameters:
        files: of each owner.
    """

    def __init__(self, files: Iterable[Path]) -> None:
        self._read = dict.fromkeys(files, 0)
        self.states: dict[Ends, str] = {}
        """The newest state of every session that has logged one."""

    def news(self) -> list[Change]:
        """The changes written since the last call."""
        found = []
        for file, offset in self._read.items():
            if not file.exists():
                continue
            with file.open("rb") as opened:
                opened.seek(offset)
                whole = opened.read().rpartition(b"\n")[0]
            if whole:
                self._read[file] = offset + len(whole) + 1
                found += parse(whole.decode(errors="replace").splitlines())
        for change in sorted(found):
            self.states[change.ends] = change.state
        return found
