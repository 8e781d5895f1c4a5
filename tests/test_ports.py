"""Ports that are kept for a server: the kernel gives them to nobody else."""

from __future__ import annotations

import socket

import pytest

from ports import port_for


class Owner:
    """Of a port."""


def test_a_port_is_kept_for_a_server_before_it_listens_and_while_it_is_down():
    """A socket that asks for any port, or for this one, gets another or none; when the owner is gone, anybody does."""
    owner = Owner()
    port = port_for(owner)
    for _ in range(2):
        with socket.create_server(("127.0.0.1", port)) as server, socket.create_connection(("127.0.0.1", port)):
            server.accept()[0].close()
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
    del owner
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a connection of before may not be forgotten yet
        other.bind(("127.0.0.1", port))
        other.listen()
