"""Both ends of a reset connection have the error that a network gives."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from pathlib import Path

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


def test_a_connection_that_the_process_closes_meanwhile_is_none_to_reset(monkeypatch):
    """Between the moment at which its name is read and that at which it is reached for. The others are reset."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ends = [socket.create_connection(server.getsockname()) for _ in range(2)]
        peers = [server.accept()[0] for _ in range(2)]
        closed, kept = ends
        read = Path.readlink

        def readlink(path):
            """Reads it, and then the process closes it."""
            name = read(path)
            if path.name == str(closed.fileno()):
                closed.close()
            return name

        monkeypatch.setattr(Path, "readlink", readlink)
        reset_connections(os.getpid())

        assert closed.fileno() == -1
        with pytest.raises(OSError, match=os.strerror(errno.ENOTCONN)):
            kept.getpeername()
        for each in (kept, *peers):
            each.close()
