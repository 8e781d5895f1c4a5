"""Listens to the kernel's messages about links and addresses (rtnetlink(7))."""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import TYPE_CHECKING, Self

import msgspec
import structlog

from foliot.node import rtnetlink
from foliot.node.nic_discovery import Held, is_settled, settle
from foliot.settings import NodeSettings, load

if TYPE_CHECKING:
    from collections.abc import Callable

    from foliot.node.rtnetlink import LinkAddress, LinkChange

log = structlog.get_logger()


async def node_settings() -> NodeSettings:
    """``[node]`` of the settings, with the devices and addresses of this host's NICs where the settings leave them out.

    Raises:
        SettingsError: a key is wrong, or a NIC is not there.
    """
    settings = load(NodeSettings, "node")
    return settings if is_settled(settings) else settle(settings, await addresses())


async def addresses() -> list[Held]:
    """All IPv4 addresses of this network namespace, those of devices that are down too."""
    names = {link.index: link.name for link in await rtnetlink.links()}
    return [Held(names[each.link], each.address) for each in await rtnetlink.addresses() if each.link in names]


class LinkMonitor:
    """Link messages (RTNLGRP_LINK) of this network namespace, decoded in the event loop as they come.

    Parameters:
        on_change: called at once for every message, even if it changes nothing of interest. It must not block.
        on_address: called at once with an IPv4 address that a device was given.
    """

    def __init__(
        self, on_change: Callable[[LinkChange], None], on_address: Callable[[str], None] | None = None
    ) -> None:
        self._on_change = on_change
        self._on_address = on_address
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.NETLINK_ROUTE)
        self._resync: asyncio.Task[None] | None = None
        self._overrun = False
        self._asking = asyncio.Lock()
        self._there: dict[int, LinkChange] = {}
        """The last change of every device that is there, by index."""
        self._told: set[int] = set()
        """Indexes of the devices told of since `present` asked. Without a question it stays empty: a host of containers
        has ever new indexes."""

    async def __aenter__(self) -> Self:
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        groups = rtnetlink.RTMGRP_LINK | (rtnetlink.RTMGRP_IPV4_IFADDR if self._on_address is not None else 0)
        self._socket.bind((0, groups))
        asyncio.get_running_loop().add_reader(self._socket, self._read)
        return self

    async def __aexit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()
        if self._resync is not None:
            self._resync.cancel()

    async def present(self) -> list[LinkChange]:
        """All devices as they are now, and as gone those that have gone without a message.

        It leaves out devices that a message has told of since the question, because the answer may be older than that
        message.
        """
        async with self._asking:
            self._told.clear()
            found = await rtnetlink.links()
            self._read()  # the kernel's messages up to now are handed on before the answer
            present = {change.index for change in found}
            gone = [
                msgspec.structs.replace(change, gone=True, carrier=False, admin_up=False)
                for index, change in self._there.items()
                if index not in present
            ]
            changes = [change for change in (*gone, *found) if change.index not in self._told]
            for change in changes:
                self._note(change)
            self._told.clear()
            return changes

    def _read(self) -> None:
        while True:
            try:
                data = self._socket.recv(rtnetlink.RECEIVE_BYTES)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                # Messages queued before are still there, and the kernel drops new ones until those are read.
                self._overrun = True
                continue
            for told in rtnetlink.read(data):
                self._take(told)
        if self._overrun and (self._resync is None or self._resync.done()):
            self._overrun = False
            # Messages were lost: the present state is asked for, and the counters tell what happened between.
            log.warning("link_messages_lost")
            self._resync = asyncio.get_running_loop().create_task(self._tell_present())

    def _take(self, told: LinkChange | LinkAddress) -> None:
        if isinstance(told, rtnetlink.LinkChange):
            if self._asking.locked():
                self._told.add(told.index)
            self._note(told)
            self._on_change(told)
        elif self._on_address is not None:
            self._on_address(told.address)

    def _note(self, change: LinkChange) -> None:
        if change.gone:
            self._there.pop(change.index, None)
        else:
            self._there[change.index] = change

    async def _tell_present(self) -> None:
        while True:
            for change in await self.present():
                self._on_change(change)
            if self._on_address is not None:
                for each in await rtnetlink.addresses():
                    self._on_address(each.address)
            if not self._overrun:  # else more was lost meanwhile
                return
            self._overrun = False
