"""Ports for servers that a test starts: nobody else on this machine is given them before the server listens, nor while it is down."""

from __future__ import annotations

import socket
import weakref


def keep(address: str = "127.0.0.1") -> socket.socket:
    """A socket that keeps a port of TCP free until it is closed.

    It is bound and does not listen. The kernel gives its port to no socket that asks for any, and lets a program with SO_REUSEADDR listen on it, as
    nats-server, Python's servers and gRPC do: socket(7), and inet_csk_get_port() of Linux.
    """
    keeper = socket.socket()
    keeper.bind((address, 0))
    # Not before: of two sockets that have it, both may be given one port.
    keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return keeper


def port_for(owner: object, address: str = "127.0.0.1") -> int:
    """A port that is kept as long as an object lives."""
    keeper = keep(address)
    weakref.finalize(owner, keeper.close)
    return int(keeper.getsockname()[1])
