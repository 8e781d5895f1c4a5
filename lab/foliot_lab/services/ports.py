"""Ports kept for a server: nobody else on this machine is given them before it listens, nor while it is down."""

from __future__ import annotations

import socket


def keep(address: str = "127.0.0.1", kind: socket.SocketKind = socket.SOCK_STREAM) -> socket.socket:
    """A socket that keeps a port free until it is closed; of UDP, at all other addresses.

    That of TCP is bound and does not listen. The kernel gives its port to no socket that asks for any. It lets a
    program with SO_REUSEADDR listen on it, as nats-server, Python's servers and gRPC do (socket(7), and
    inet_csk_get_port() of Linux).
    """
    keeper = socket.socket(socket.AF_INET, kind)
    keeper.bind((address, 0))
    if kind == socket.SOCK_STREAM:
        # Not before: of two sockets that have it, both may be given one port.
        keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return keeper
