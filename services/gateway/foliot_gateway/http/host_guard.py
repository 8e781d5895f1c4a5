"""Guards the names that the gateway answers to, so that no page of another site reads it.

A site can have its own name lead to the gateway's address (DNS rebinding). A browser then takes the gateway for that
site, and lets its pages read all that the gateway says.

The name in ``Host`` gives it away. An address is no site's name, nor is a name without a dot. Of all other names, the
gateway answers only to those that its host or its settings have. Litestar's own check of hosts takes a list of names,
and no such rule.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec
from litestar.enums import ScopeType
from litestar.response.base import ASGIResponse

from foliot.settings import SettingsError
from foliot_gateway.http import problems

if TYPE_CHECKING:
    from collections.abc import Iterable

    from litestar.types import ASGIApp, Receive, Scope, Send

    from foliot_gateway.settings import GatewaySettings

_ANY = "*"
_NAME = re.compile(r"[\w-]+(\.[\w-]+)*\.?", re.ASCII)
_AUTHORITY = re.compile(r"(\[[^\[\]]*\]|[^:]*)(:\d*)?")
"""A name or an address, then a port. It does not matter which port: containers and proxies publish any."""
_LONGEST = 253
"""Most characters of a name in DNS. A longer one is cut where it is repeated."""


def named(settings: GatewaySettings, endpoint: str) -> frozenset[str]:
    """The names that the settings have.

    They are those of ``hosts``, of the addresses to listen on, and of where spans go, which is the gateway.

    Raises:
        SettingsError: an entry of ``hosts`` is no name.
    """
    for entry in settings.hosts:
        if entry != _ANY and not _NAME.fullmatch(entry):
            raise SettingsError(f"gateway.hosts: expected a name without port, or {_ANY!r} for any, got {entry!r}")
    bound = (settings.host, *(entry.rpartition(":")[0] for entry in settings.bind))
    return frozenset(map(_plain, (*settings.hosts, *bound, _host_of(endpoint))))


class HostGuard:
    """Refuses, with a sentence that says so, requests for the gateway by a name that is not its own.

    Parameters:
        names: those that the settings have.
    """

    def __init__(self, app: ASGIApp, names: Iterable[str]) -> None:
        self._app = app
        self._names = frozenset(names)
        self._own: asyncio.Future[str] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Takes one request."""
        if scope["type"] == ScopeType.HTTP:
            # Browsers always send one. A client that sends none, as a health check by HTTP/1.0, is no browser.
            for name, value in scope["headers"]:
                if name == b"host" and not await self._answers_to(host := value.decode("latin-1")):
                    await _refusal(host)(scope, receive, send)
                    return
        await self._app(scope, receive, send)

    async def _answers_to(self, host: str) -> bool:
        if _ANY in self._names or not host:
            return True
        found = _AUTHORITY.fullmatch(host)
        name = _plain(found[1]) if found else ""
        if not name:
            return False
        if _is_address(name) or "." not in name or name.endswith(".localhost") or name in self._names:
            return True
        return name in await self._own_names()

    async def _own_names(self) -> set[str]:
        """The host's names. DNS may take its time, so the first request that needs them asks it, and not the start."""
        if self._own is None:
            self._own = asyncio.ensure_future(asyncio.to_thread(_full_name))
        own = await asyncio.shield(self._own)
        if "." not in own:
            self._own = None  # DNS may know it later
        return {_plain(socket.gethostname()), _plain(own)}


def _full_name() -> str:
    try:
        return socket.getfqdn()
    except UnicodeError:  # a label that DNS cannot have
        return ""


def _plain(name: str) -> str:
    return name.removesuffix(".").lower()


def _host_of(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _refusal(host: str) -> ASGIResponse:
    name = host.partition(":")[0][:_LONGEST]
    body = msgspec.json.encode(
        problems.problem(
            HTTPStatus.MISDIRECTED_REQUEST,
            f"The gateway does not answer to the name {name!r}: a page of another site might have sent this. "
            "If it is the gateway's, put it into gateway.hosts in the gateway's settings.",
            "not-my-name",
        )
    )
    return ASGIResponse(
        body=body,
        status_code=HTTPStatus.MISDIRECTED_REQUEST,
        media_type=problems.MEDIA_TYPE,
        headers={"x-content-type-options": "nosniff"},
    )
