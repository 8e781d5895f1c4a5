"""What the kernel drops with a NIC comes back when it can, whatever the kernel tells meanwhile."""

from __future__ import annotations

import asyncio

import pytest
from pyroute2.netlink.exceptions import NetlinkError
from structlog.testing import capture_logs

from foliot.node.rtnetlink import LinkChange
from foliot.settings import NicSettings, NodeSettings
from foliot_agent.control import kernel_backend as kernel_module
from foliot_agent.control.kernel_backend import KernelBackend
from foliot_agent.control.restart_cache import RestartCache
from foliot_agent.core.overlay_layout import Layout


class Overlay:
    """One that stands on all NICs."""

    def stands_on(self, *_: object) -> bool:
        """See `foliot_agent.kernel.overlay_devices.Overlay`."""
        return True


class Keeper:
    """Owes what it is told to.

    The address is there when a test says so, and the kernel refuses routes so many times.
    """

    def __init__(self) -> None:
        self.owed: set[str] = set()
        self.has_address, self.refusals, self.looks = False, 0, 0

    async def is_ready(self, _device: str, _address: str) -> bool:
        """See `foliot_agent.kernel.route_restorer.RouteRestorer`."""
        self.looks += 1
        return self.has_address

    async def put_back(self, device: str) -> None:
        """See `foliot_agent.kernel.route_restorer.RouteRestorer`."""
        if self.refusals:
            self.refusals -= 1
            raise NetlinkError(101, "Network is unreachable")
        self.owed.discard(device)


@pytest.fixture
async def kernel(monkeypatch):
    """That of a node whose rail0 was set down and up again: its routes are owed."""
    monkeypatch.setattr(kernel_module, "_LOOK_S", 0.01)
    nics = tuple(
        NicSettings(rail=f"rail{rail}", number=rail, device=f"eth{rail}", address=f"10.{rail}.0.1") for rail in (0, 1)
    )
    made = KernelBackend(Layout.of(NodeSettings(name="node0", index=0, nics=nics)), RestartCache("", "node0", "boot"))
    made._overlay, made._restorer = Overlay(), Keeper()
    keeping = asyncio.create_task(made.keep({}, None, None))
    for admin_up, count in ((False, 1), (True, 1)):
        made.take_link(
            LinkChange(
                index=2, name="eth0", admin_up=admin_up, carrier=admin_up, carrier_up_count=1, carrier_down_count=count,
                mtu=1_500, gone=False,
            )
        )  # fmt: skip
    yield made
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)


async def looked(restorer: Keeper, count: int) -> None:
    """Until it was looked after so many times."""
    async with asyncio.timeout(60):
        while restorer.looks < count:  # noqa: ASYNC110 - the looks are the event
            await asyncio.sleep(0.001)


async def test_a_nic_without_its_address_is_waited_for_and_that_is_said_once(kernel):
    """For as long as it takes: nothing may come to it. The kernel's word that the address is there may be lost."""
    with capture_logs() as logs:
        waiting = asyncio.create_task(kernel.restored("rail0"))
        await looked(kernel._restorer, 8)
        assert not waiting.done()
        kernel._restorer.has_address = True
        async with asyncio.timeout(60):
            await waiting
    said = [entry for entry in logs if entry["event"] == "nic_not_restored"]
    assert [(entry["rail"], entry["device"]) for entry in said] == [("rail0", "eth0")]
    assert "10.0.0.1" in said[0]["hint"]
    await kernel.restored("rail1")


async def test_routes_that_are_refused_are_put_back_later(kernel):
    """Though nothing more is told of the NIC."""
    kernel._restorer.has_address, kernel._restorer.refusals = True, 3
    async with asyncio.timeout(60):
        await kernel.restored("rail0")
    assert kernel._restorer.looks == 4
