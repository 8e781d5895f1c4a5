"""Both ends of a reset connection have the error that a network gives."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys

import pytest

from foliot_lab.faults.connection_resets import reset_connections

CHILD = """
import select, socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
    connection.setblocking(False)
    waiting = select.epoll()
    waiting.register(connection, select.EPOLLIN)
    print("connected", flush=True)
    events = 0
    while not events & select.EPOLLIN:
        ((_, events),) = waiting.poll(30)
    try:
        connection.recv(1)
    except OSError as error:
        print(error.errno, flush=True)
"""


def test_both_ends_have_a_reset():
    """Of a process that waits until there is something to read, as Gloo does."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(server.getsockname()[1])], stdout=subprocess.PIPE, text=True
        )
        with child, server.accept()[0] as accepted:
            accepted.settimeout(30)
            assert child.stdout.readline() == "connected\n"

            reset_connections(child.pid)

            with pytest.raises(ConnectionResetError):
                accepted.recv(1)
            assert int(child.stdout.readline()) == errno.ECONNRESET


def test_a_process_without_connections_is_left_alone():
    """Nor is anything done where there is no process."""
    reset_connections(0)
    one, other = socket.socketpair()
    with one, other, socket.create_server(("127.0.0.1", 0)) as server:
        reset_connections(os.getpid())
        one.send(b"x")
        assert other.recv(1) == b"x"
        assert server.getsockname()[1]
