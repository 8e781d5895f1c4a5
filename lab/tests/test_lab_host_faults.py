"""What befalls a host from outside: its kernel's log, its drain, and its cables."""

import asyncio
import fcntl
import os
import socket
import struct
import time
from contextlib import asynccontextmanager

import pytest

from foliot.settings import BusSettings
from foliot_lab.fabric.namespaces import inside
from foliot_lab.faults import drains
from foliot_lab.faults.actions import prepare
from foliot_lab.faults.drains import Drains
from foliot_lab.faults.host_faults import HostFaults
from foliot_lab.faults.kernel_logs import KernelLogs
from foliot_lab.faults.world import World
from foliot_lab.scenario.spec import FabricSpec, FaultSpec
from foliot_schemas.subjects import DRAINS
from patience import patience

SPEC = FabricSpec(hosts=2, rails=2, leaves=1, spines=1)


def test_an_error_of_a_gpu_is_in_its_hosts_log_alone(tmp_path):
    """As NVIDIA's driver writes it. The log is a pipe whose end its reader never sees."""
    logs = KernelLogs(["node0", "node1"], lambda host: tmp_path / host)
    reader, other = (os.open(tmp_path / host, os.O_RDONLY | os.O_NONBLOCK) for host in ("node0", "node1"))
    try:
        logs.xid("node0", 79)
        assert os.read(reader, 4096) == (
            b"NVRM: Xid (PCI:0000:65:00): 79, pid=1234, name=python, GPU has fallen off the bus.\n"
        )
        logs.xid("node0", 13)
        assert os.read(reader, 4096).startswith(b"NVRM: Xid (PCI:0000:65:00): 13, pid=1234, name=python, ")
        with pytest.raises(BlockingIOError):
            os.read(other, 4096)
    finally:
        logs.close()
        logs.close()
        for opened in (reader, other):
            os.close(opened)


async def test_a_drain_is_written_as_a_person_would(monkeypatch):
    """Into the bucket, by who may write there; after it, that the node may be used again."""
    written = []

    class Bus:
        async def put(self, bucket, key, message):
            await asyncio.sleep(0)
            written.append((bucket, key, message.node, message.over))

    @asynccontextmanager
    async def connected(settings, *, role):
        assert role == "scheduler"
        yield Bus()

    monkeypatch.setattr(drains, "OneShot", connected)
    given = Drains(BusSettings())
    given.set("node1", over=False)
    await given.close()
    given.set("node1", over=True)
    await given.close()
    assert written == [(DRAINS, "node1", "node1", False), (DRAINS, "node1", "node1", True)]


async def test_a_drain_that_cannot_be_written_ends_nothing(monkeypatch):
    """The bus may be away."""

    @asynccontextmanager
    async def connected(settings, *, role):
        raise OSError("no route")
        yield

    monkeypatch.setattr(drains, "OneShot", connected)
    given = Drains(BusSettings())
    given.set("node1", over=False)
    await given.close()


class Taken:
    """A job that notes which hosts are lost, and where its processes were started again."""

    def __init__(self):
        self.lost, self.again = [], []

    def lose_host(self, host):
        """Notes it."""
        self.lost.append(host)

    def start_again(self, where):
        """Notes it."""
        self.again.append(where)


@pytest.mark.net
def test_a_host_that_is_cut_off_has_no_cable_any_more(fabric):
    """Neither of its NICs nor of its frontend, and all of them again afterwards; another host keeps its own."""
    pulled, job = [], Taken()
    hosts = HostFaults(fabric, lambda host, away: pulled.append((host, away)), None, None)
    world = World(None, None, None, None, hosts)
    world.job = job
    action = prepare(FaultSpec(at_s=0.0, kind="cut-off", where="node1"), SPEC, fabric, world)

    def carriers(host):
        with inside(fabric.host(host)):
            return [_carrier(rail) for rail in ("rail0", "rail1")]

    def settled(*expected):
        """The carriers of both hosts, once they are so: the kernel tells of a carrier within a second."""
        until_s = time.monotonic() + patience(5)
        while (found := (carriers("node0"), carriers("node1"))) != expected and time.monotonic() < until_s:
            time.sleep(0.02)
        return found

    action.inject()
    assert settled([1, 1], [0, 0]) == ([1, 1], [0, 0])
    assert (job.lost, job.again) == (["node1"], [])
    action.heal()
    assert settled([1, 1], [1, 1]) == ([1, 1], [1, 1])
    assert pulled == [("node1", True), ("node1", False)]
    assert (job.lost, job.again) == (["node1"], ["node1"])


def _carrier(device):
    """Whether a device of the calling thread's namespace has a carrier: IFF_RUNNING of netdevice(7)."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        answer = fcntl.ioctl(asked, 0x8913, struct.pack("16sH14x", device.encode(), 0))
    return struct.unpack("16sH14x", answer)[1] >> 6 & 1
