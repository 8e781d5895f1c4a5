"""Processes of training jobs, as the agent's socket hears them, that speak from within a test."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time

import msgspec

from foliot_agent.core import worker_report
from foliot_agent.ranks.rank_socket import RankSocket
from patience import patience

NOW_NS = 1_700_000_000_000_000_000
S = 1_000_000_000
SPEAKER = """
import socket, sys, time
rank = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
rank.connect(sys.argv[1])
rank.send(sys.argv[2].encode())
time.sleep(1000)
"""


class Clock:
    """The reference time is NOW_NS later than local time."""

    name = "node0"

    def local_ns(self) -> int:
        """Local time."""
        return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)

    def now_ns(self) -> int:
        """Reference time."""
        return self.local_ns() + NOW_NS

    def bound_ns(self) -> int:
        """Its bound."""
        return 400


def worker(process: int = 7, rank: int = 0, stage: str = "training", **more) -> bytes:
    """A worker's packet."""
    fields = {"kind": "worker", "job": "pretrain", "process": process, "rank": rank, "size": 4, "stage": stage}
    return msgspec.json.encode(fields | more)


def worker_said(process: int = 7, rank: int = 0, stage: str = "training", **more) -> worker_report.WorkerReport:
    """The same, as it was read."""
    return worker_report.read(worker(process, rank, stage, **more))


class Spoken:
    """A process that speaks to the socket from within this process."""

    def __init__(self, path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.connect(str(path))
        self.socket.setblocking(False)

    def say(self, data: bytes) -> None:
        """Sends a packet."""
        self.socket.send(data)

    def hear(self) -> list[dict]:
        """What it was told since."""
        found = []
        with contextlib.suppress(BlockingIOError):
            while packet := self.socket.recv(1 << 16):
                found.append(msgspec.json.decode(packet))
        return found

    def is_cut_off(self) -> bool:
        """Whether the other end has closed the connection."""
        try:
            return not self.socket.recv(1 << 16)
        except BlockingIOError:
            return False

    def close(self) -> None:
        """Ends it."""
        self.socket.close()


@contextlib.asynccontextmanager
async def hearing(path):
    """The socket, open, with the batches that it has told as `told`, and `speak`, which makes a process."""
    told, spoken = [], []
    ranks = RankSocket(str(path), "node0", Clock(), told.append)
    ranks.open()
    telling = asyncio.create_task(ranks.tell())

    def speak(*packets: bytes) -> Spoken:
        made = Spoken(path)
        spoken.append(made)
        for packet in packets:
            made.say(packet)
        return made

    ranks.told, ranks.path, ranks.speak = told, path, speak
    try:
        yield ranks
    finally:
        telling.cancel()
        ranks.close()
        for each in spoken:
            each.close()


async def until(condition) -> None:
    """Waits for it."""
    async with asyncio.timeout(patience(20)):
        while not condition():  # noqa: ASYNC110 - a process
            await asyncio.sleep(0.01)
