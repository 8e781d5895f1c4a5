"""Ranks of a DDP job over loopback whose group breaks again and again. The last rank is the one that is lost each time.

`bench.studies.broken_groups` starts them, as one process that forks into each of them. Each rank that is left writes a
line of JSON for each group.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import importlib
import json
import os
import random
import socket
import sys
import threading
import time
import traceback
from typing import TYPE_CHECKING, NoReturn

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from bench.studies.broken_groups.manners import MANNERS, RANKS, Manner
from foliot.torch import interception
from foliot.torch.collective_log import CollectiveLog
from foliot.torch.group_sockets import GroupSockets
from foliot.torch.process_groups import FormerGroups
from foliot.torch.stuck_waits import StuckWaits
from foliot_lab.fabric.namespaces import end_with_parent

if TYPE_CHECKING:
    from collections.abc import Sequence

_WIDTH, _LAYERS, _SENTENCES = 256, 8, 4
_APART_S = (0.0005, 0.003, 0.02, 0.08)
"""Within so long the ranks end their connections."""
_BEGINS_S = 0.1
_LOOKS_S = 0.3
"""So long after the connections have ended, transfers that are under way were forgotten."""
_LOST_ENDS_S = 0.25
_POLL_S = 0.01
_ALL_S = dt.timedelta(minutes=10)


class AtOnce(GroupSockets):
    """Ends connections both ways."""

    def shut_down(self) -> None:
        """Ends the connections."""
        self._shut_down(socket.SHUT_RDWR)


class ReadingFirst(GroupSockets):
    """As Foliot does, but it does not wait until nothing moves."""

    def _settle(self) -> None:
        pass


_SOCKETS: dict[Manner, type[GroupSockets]] = {
    "at-once": AtOnce, "reading-first": ReadingFirst, "when-nothing-moves": GroupSockets,
}  # fmt: skip


class Rank:
    """One of the job's processes.

    Parameters:
        store: at which the ranks meet.
        port: of the store.
    """

    def __init__(self, rank: int, store: dist.Store, port: int) -> None:
        self._rank, self._store, self._port = rank, store, port
        self._log = CollectiveLog()
        interception.intercept(self._log)
        self._former = FormerGroups()

    def break_one(self, number: int, manner: Manner) -> dict[str, object]:
        """Forms a group, breaks it, and leaves it; returns what came of it."""
        store = dist.PrefixStore(str(number), self._store)
        sockets = _SOCKETS[manner](0)
        dist.init_process_group("gloo", store=store, rank=self._rank, world_size=RANKS, timeout=_ALL_S)
        sockets.formed(but_ports={self._port})
        model = DistributedDataParallel(torch.nn.Sequential(*[torch.nn.Linear(_WIDTH, _WIDTH) for _ in range(_LAYERS)]))
        for _ in range(2):
            _step(model)
        self._meet(store, "formed", range(RANKS))
        drawn = random.Random(f"{number}")
        apart_s, is_busy, stops_s = drawn.choice(_APART_S), drawn.random() < 0.5, drawn.uniform(-0.01, 0.04)
        if self._rank == RANKS - 1:
            self._be_lost(store, sockets, model, _BEGINS_S + stops_s if is_busy else 0.0)
            return {}
        found = self._leave(sockets, model, random.Random(f"{number}/{self._rank}").uniform(0.0, apart_s))
        store.set(f"left{self._rank}", "1")
        return {"group": number, "manner": manner, "rank": self._rank, "busy": is_busy, **found}

    def _be_lost(self, store: dist.Store, sockets: GroupSockets, model: torch.nn.Module, steps_s: float) -> None:
        """Does steps for so long and then none, while the connections stay, as those of a host that is cut off."""
        until_s = time.monotonic() + steps_s
        waits = StuckWaits(self._log, lambda: None)
        waits.entered()

        def end() -> None:
            time.sleep(_LOST_ENDS_S)
            sockets.shut_down()
            waits.look()

        ending = threading.Thread(target=end)
        ending.start()
        with contextlib.suppress(RuntimeError):
            while time.monotonic() < until_s:
                _step(model)
        ending.join()
        waits.left()
        self._meet(store, "left", range(RANKS - 1), tells=False)
        self._let_go()

    def _leave(self, sockets: GroupSockets, model: torch.nn.Module, later_s: float) -> dict[str, object]:
        """Does steps until they fail, as another thread ends the connections."""
        began_s = time.monotonic()
        waits = StuckWaits(self._log, lambda: None)
        waits.entered()
        forgotten: list[int] = []

        def end() -> None:
            time.sleep(_BEGINS_S + later_s)
            sockets.shut_down()
            time.sleep(_LOOKS_S)
            forgotten.append(len(self._log.unfinished()))
            waits.look()

        ending = threading.Thread(target=end)
        ending.start()
        with contextlib.suppress(RuntimeError):
            while True:
                _step(model)
        raised_s = time.monotonic() - began_s
        waits.left()
        ending.join()
        self._let_go()
        return {
            "forgotten": forgotten[0], "ended_by_future": waits.ended_one,
            "left_ms": round((raised_s - _BEGINS_S - later_s) * 1e3, 1),
        }  # fmt: skip

    def _let_go(self) -> None:
        self._log.leave()
        self._former.leave()

    def _meet(self, store: dist.Store, where: str, ranks: Sequence[int], *, tells: bool = True) -> None:
        if tells:
            store.set(f"{where}{self._rank}", "1")
        store.wait([f"{where}{rank}" for rank in ranks], _ALL_S)


def _step(model: torch.nn.Module) -> None:
    model(torch.randn(_SENTENCES, _WIDTH)).sum().backward()


def _run(number: int, given: argparse.Namespace) -> NoReturn:
    """Breaks one group after another, as one of the ranks."""
    try:
        store = dist.TCPStore("127.0.0.1", given.port, is_master=not number, wait_for_workers=False)
        rank = Rank(number, store, given.port)
        for group in range(given.first, given.first + given.groups):
            if found := rank.break_one(group, MANNERS[group % len(MANNERS)]):
                sys.stdout.write(json.dumps(found) + "\n")
                sys.stdout.flush()
        store.add("over", 1)
        while not number and store.add("over", 0) < RANKS:  # whose store it is ends last
            time.sleep(_POLL_S)
    except BaseException:  # noqa: BLE001 - whatever it is, it is told and ends the rank
        traceback.print_exc()
        os._exit(1)
    os._exit(0)  # the groups' threads are there still


def main() -> int:
    """Forks into the ranks; 1: one of them failed."""
    parser = argparse.ArgumentParser(prog="bench.studies.broken_groups.rank")
    for name in ("port", "first", "groups"):
        parser.add_argument(f"--{name}", type=int, required=True)
    given = parser.parse_args()
    torch.set_num_threads(1)
    importlib.import_module("torch._dynamo")  # as DDP would in each rank, for seconds
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    for number in range(RANKS):
        if not os.fork():
            end_with_parent()
            _run(number, given)
    return int(any(os.wait()[1] for _ in range(RANKS)))  # one that failed ends all: they end with this process


if __name__ == "__main__":
    sys.exit(main())
