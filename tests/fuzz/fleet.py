"""All services as processes on one bus, on loopback addresses; and what shows that each still does its work."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import os
import socket
import sys
import time
from pathlib import Path

import hostile
import httpx
import numpy as np
from msgspec import structs

from foliot.node.addressing import describe
from foliot.settings import NicSettings, NodeSettings
from foliot_lab.services import emulated_actuator
from foliot_schemas import Command, Event, PortState, StampBatch, StampRow
from foliot_schemas.observation import Stream
from foliot_schemas.subjects import CLOCK, COMMAND, EVENT, INVENTORY, OUTCOME, PORT, REJECTED, SERVICES, STAMPS
from patience import patience
from ports import port_for

KEY = "a key that the fleet shares"
_PATIENCE_S = patience(60.0)


def free_datagram_port():
    """A port of UDP that nobody has now."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
        opened.bind(("127.0.0.1", 0))
        return opened.getsockname()[1]


async def until(condition, what):
    """Waits for a condition, generously."""
    deadline_s = time.monotonic() + _PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s, f"waited in vain: {what}"
        await asyncio.sleep(0.02)


class Fleet:
    """Probe and agent of node0, and one of each other service, or some of them.

    The test speaks for all other nodes.
    """

    def __init__(self, bus, folder: Path, url: str, services=SERVICES) -> None:
        self.bus = bus
        self._services = services
        self.settings = NodeSettings(
            name="node0", index=0, service_prefix="127.200.0.0/13", path_prefix="127.64.0.0/10", entropies=(1, 2),
            nics=tuple(
                NicSettings(rail=rail, number=number, device="lo", address=f"127.0.{number + 1}.1")
                for number, rail in enumerate(hostile.RAILS)
            ),
            probe_port=free_datagram_port(), agent_port=free_datagram_port(),
        )  # fmt: skip
        self.own = describe(self.settings)
        self.http, self.rpc = port_for(self), port_for(self)
        self.rejected: collections.Counter[str] = collections.Counter()
        self.heard: collections.Counter[tuple[str, ...]] = collections.Counter()
        self._folder = folder
        self._url = url
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._round = self._ports = 0

    async def start(self) -> None:
        """Starts all, and waits until each does its work."""
        config = self._folder / "foliot.toml"
        nics = "".join(
            f'[[node.nics]]\nrail = "{nic.rail}"\nnumber = {nic.number}\ndevice = "lo"\naddress = "{nic.address}"\n'
            for nic in self.settings.nics
        )
        config.write_text(
            f'[bus]\nurl = "{self._url}"\n[telemetry]\nendpoint = ""\n[sync]\nwindow_s = 0.5\n[gateway]\n'
            f"port = {self.http}\ngrpc_port = {self.rpc}\n"
            f'[extensions]\nmodules = ["{emulated_actuator.__name__}"]\n'
            f'[agent]\nactuator = "{emulated_actuator.NAME}"\narmed = "always"\nkey = "{KEY}"\n'
            f'[node]\nname = "node0"\nindex = 0\nservice_prefix = "127.200.0.0/13"\n'
            f'path_prefix = "127.64.0.0/10"\nentropies = [1, 2]\n'
            f"probe_port = {self.settings.probe_port}\nagent_port = {self.settings.agent_port}\n{nics}"
        )
        await self.bus.subscribe(REJECTED, self._on_rejected)
        await self.bus.subscribe(EVENT, self._hears(lambda event: ("event", event.kind, event.who, event.policy)))
        await self.bus.subscribe(CLOCK, self._hears(lambda state: ("clock", state.clock)))
        await self.bus.subscribe(OUTCOME, self._hears(lambda outcome: ("outcome", outcome.command)))
        await self.bus.subscribe(PORT, self._hears(lambda port: ("port", port.node)))
        for service in self._services:
            log = (self._folder / f"{service}.log").open("wb")
            self._processes[service] = await asyncio.create_subprocess_exec(
                sys.executable, "-m", f"foliot_{service}", env={**os.environ, "FOLIOT_CONFIG": str(config)},
                stdout=log, stderr=log,
            )  # fmt: skip
            log.close()
        await self.works()

    async def stop(self) -> None:
        """Ends all; each ends well."""
        for process in self._processes.values():
            if process.returncode is None:
                process.terminate()
        ended = {service: await process.wait() for service, process in self._processes.items()}
        assert set(ended.values()) == {0}, ended

    def memory_kib(self) -> dict[str, int]:
        """Resident, by service."""
        pages = {
            service: int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
            for service, process in self._processes.items()
        }
        return {service: count * os.sysconf("SC_PAGE_SIZE") // 1024 for service, count in pages.items()}

    async def works(self) -> None:
        """Gives every service something to do, about a node that nobody has spoken of yet, and waits for the effect."""
        self._round += 1
        self._ports = self.heard["port", "node0"]
        name = f"sound{self._round}"
        record = hostile.node(name, 50 + self._round)
        await self.bus.put(INVENTORY, name, record)
        deadline_s, number = time.monotonic() + _PATIENCE_S, 0
        while missing := [what for what, seen in (await self._effects(name)).items() if not seen]:
            ended = [service for service, process in self._processes.items() if process.returncode is not None]
            assert not ended, f"ended: {ended}"
            assert time.monotonic() < deadline_s, f"{missing} of {name} not seen, heard {self.heard}"
            await self._give_work(name, number)
            number += 1
            await asyncio.sleep(0.25)

    # -- inside -------------------------------------------------------------------------------------------------------

    async def _give_work(self, name: str, number: int) -> None:
        now_ns = time.time_ns()
        port = PortState(
            node=name, nic=f"{name}.rail0", at_ns=now_ns, carrier=True, admin_up=True, carrier_down_count=number,
            carrier_up_count=number + 1, fault="test",
        )  # fmt: skip
        await self.bus.publish(PORT, port, name)
        lost = structs.replace(port, at_ns=now_ns + 1, carrier=False, carrier_down_count=number + 1)
        await self.bus.publish(PORT, lost, name)
        strange = f"strange-{name}.rail0"
        event = Event(id=f"{strange}/{number}", kind="flap", who=strange, state="down", at_ns=now_ns, since_ns=now_ns)
        self.bus.publish_kept(EVENT, event, "flap", strange)
        command = Command(
            id=f"for-{name}", verb="reroute", node="node0", cause="e", issued_ns=now_ns, deadline_ns=now_ns + 10**9,
            lease_revision=1, away=("rail0",),
        )  # fmt: skip
        self.bus.publish_kept(COMMAND, command, "reroute", "node0")
        stream = Stream(path=f"{name}.rail0>node0.rail0#0", initiator=name, responder="node0", kind="user")
        stamps = StampBatch.of(
            np.array([(0, 0, 10, 50), (0, 1, 60, 90)], StampRow), node=name, since_ns=number * 10**9,
            until_ns=(number + 1) * 10**9, epoch_ns=now_ns, streams=(stream,),
        )  # fmt: skip
        await self.bus.publish(STAMPS, stamps, name)

    async def _effects(self, name: str) -> dict[str, bool]:
        shown = b""
        with contextlib.suppress(httpx.ConnectError):  # it does not listen yet
            async with httpx.AsyncClient(trust_env=False, timeout=patience(30)) as client:
                shown = (await client.get(f"http://127.0.0.1:{self.http}/api/v1/fleet")).content
        effects = {
            "detector": self.heard["event", "flap", f"{name}.rail0", ""] > 0,
            "remediator": self.heard["event", "refusal", f"strange-{name}.rail0", "unknown"] > 0,
            "sync": self.heard["clock", name] > 0,
            "agent": self.heard["outcome", f"for-{name}"] > 0,
            "gateway": f"{name}.rail0".encode() in shown,
            "probe": self.heard["port", "node0"] > self._ports,
        }
        return {service: effects[service] for service in self._services}

    async def _on_rejected(self, rejected, _subject) -> None:
        self.rejected[rejected.service] += 1

    def _hears(self, name_of):
        async def heard(message, _subject):
            self.heard[name_of(message)] += 1

        return heard


def random_names(draw, message):
    """The message as somebody unheard of would send it: fresh names in all fields that hold a name."""
    fresh = f"n{draw.getrandbits(48):x}"
    named = {"node": fresh, "nic": f"{fresh}.rail0", "clock": fresh, "who": f"{fresh}.rail0", "service": fresh}
    changes = {field: named[field] for field in message.__struct_fields__ if field in named}
    if "paths" in message.__struct_fields__:
        changes["paths"] = tuple(path.replace(f"{message.node}.", f"{fresh}.") for path in message.paths)
    if "streams" in message.__struct_fields__:
        changes["streams"] = tuple(
            structs.replace(stream, path=stream.path.replace(f"{message.node}.", f"{fresh}."), initiator=fresh)
            for stream in message.streams
        )
    return structs.replace(message, **changes)
