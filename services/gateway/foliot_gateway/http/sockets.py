"""The sockets to serve on: those that were handed over (systemd's socket activation), and those to be made.

A handed-over socket may belong to another network namespace. By it, that namespace's services reach the gateway without
sharing a network.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

from foliot.settings import SettingsError

if TYPE_CHECKING:
    from foliot_gateway.settings import GatewaySettings

_FIRST_FD = 3
"""SD_LISTEN_FDS_START of sd_listen_fds(3)."""


def handed_over() -> range:
    """The file descriptors handed over, by the protocol of sd_listen_fds(3).

    An empty ``LISTEN_PID`` means this process: a parent that does not know our process id before we run cannot name it.

    Raises:
        SettingsError: a variable is no number.
    """
    try:
        count = int(os.environ.get("LISTEN_FDS") or 0)
        meant = int(os.environ.get("LISTEN_PID") or os.getpid())
    except ValueError as error:
        raise SettingsError(f"LISTEN_FDS and LISTEN_PID must be numbers: {error}") from None
    return range(_FIRST_FD, _FIRST_FD + (count if meant == os.getpid() else 0))


def addresses(settings: GatewaySettings, *, activated: bool) -> tuple[tuple[str, int], ...]:
    """The addresses to bind: those of ``bind``; without any, ``host`` and ``port``, unless sockets were handed over.

    Raises:
        SettingsError: an entry of ``bind`` is not ``host:port``.
    """
    if settings.bind:
        return tuple(_address(entry) for entry in settings.bind)
    return () if activated else ((settings.host, settings.port),)


def rpc_addresses(settings: GatewaySettings) -> tuple[tuple[str, int], ...]:
    """The addresses of gRPC: its port on each host that HTTP is bound to, none if the port is 0.

    The library of gRPC makes its sockets itself, so that none can be handed over.
    """
    hosts = dict.fromkeys(host for host, _ in addresses(settings, activated=False))
    return tuple((host, settings.grpc_port) for host in hosts) if settings.grpc_port else ()


def open_all(settings: GatewaySettings) -> tuple[list[socket.socket], list[socket.socket]]:
    """All sockets to serve on: handed over, and made here.

    Raises:
        SettingsError: an address cannot be bound, or what was handed over is no stream socket.
    """
    adopted = [_adopt(descriptor) for descriptor in handed_over()]
    made = [_bind(host, port) for host, port in addresses(settings, activated=bool(adopted))]
    return adopted, made


def url(of: socket.socket) -> str:
    """The address by which this process itself reaches a socket that it made."""
    host, port = of.getsockname()[:2]
    here = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not bound
    return f"http://[{here}]:{port}" if ":" in here else f"http://{here}:{port}"


def _address(entry: str) -> tuple[str, int]:
    host, _, port = entry.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise SettingsError(f"gateway.bind: expected host:port, got {entry!r}")
    return host.strip("[]"), int(port)


def _bind(host: str, port: int) -> socket.socket:
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # "::" takes IPv4 too, as a socket of the kernel's own does. A host without IPv6 is to say so, which
        # create_server does not.
        both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
        return socket.create_server(address, family=family, dualstack_ipv6=both)
    except OSError as error:
        raise SettingsError(f"gateway: cannot listen on {host}:{port}: {error.strerror or error}") from error


def _adopt(descriptor: int) -> socket.socket:
    try:
        adopted = socket.socket(fileno=descriptor)
    except OSError as error:
        raise SettingsError(f"LISTEN_FDS: descriptor {descriptor} is no socket: {error.strerror}") from error
    if adopted.type != socket.SOCK_STREAM:
        adopted.close()
        raise SettingsError(f"LISTEN_FDS: descriptor {descriptor} is no stream socket")
    os.set_inheritable(descriptor, False)
    return adopted
