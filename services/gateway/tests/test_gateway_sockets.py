"""Which sockets the gateway serves on."""

import errno
import os
import socket
import subprocess
import sys

import pytest

from foliot.settings import SettingsError
from foliot_gateway.http import sockets
from foliot_gateway.settings import GatewaySettings


@pytest.fixture(autouse=True)
def nothing_is_handed_over(monkeypatch):
    """Whatever this process was started with."""
    for name in ("LISTEN_FDS", "LISTEN_PID"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("environment", "descriptors"),
    [
        ({}, []),
        ({"LISTEN_FDS": "1", "LISTEN_PID": "42"}, [3]),
        ({"LISTEN_FDS": "2", "LISTEN_PID": ""}, [3, 4]),
        ({"LISTEN_FDS": "1"}, [3]),
        ({"LISTEN_FDS": "1", "LISTEN_PID": "41"}, []),
        ({"LISTEN_FDS": "", "LISTEN_PID": "42"}, []),
    ],
)
def test_sockets_meant_for_another_process_are_left_alone(monkeypatch, environment, descriptors):
    """The protocol of sd_listen_fds, with an empty LISTEN_PID for whoever reads it."""
    monkeypatch.setattr(os, "getpid", lambda: 42)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert descriptors == list(sockets.handed_over())


def test_a_variable_that_is_no_number_stops_the_start(monkeypatch):
    """The message names the variables."""
    monkeypatch.setenv("LISTEN_FDS", "one")
    with pytest.raises(SettingsError, match="LISTEN_FDS"):
        sockets.handed_over()


def test_bind_adds_to_an_activated_socket_and_the_default_does_not():
    """A handed-over socket replaces host and port; addresses named on purpose are served besides."""
    plain = GatewaySettings(port=1)
    named = GatewaySettings(port=1, bind=("127.0.0.1:2", "[::1]:3"))

    assert sockets.addresses(plain, activated=False) == (("127.0.0.1", 1),)
    assert sockets.addresses(plain, activated=True) == ()
    assert sockets.addresses(named, activated=True) == (("127.0.0.1", 2), ("::1", 3))
    assert sockets.addresses(named, activated=False) == (("127.0.0.1", 2), ("::1", 3))


@pytest.mark.parametrize("entry", ["8470", "host:", ":8470", "host:port", "host:70000"])
def test_a_wrong_address_stops_the_start_and_names_the_key(entry):
    """So that a typing error is found in the file, not in the network."""
    with pytest.raises(SettingsError, match=r"gateway\.bind"):
        sockets.addresses(GatewaySettings(bind=(entry,)), activated=False)


def test_a_taken_port_stops_the_start():
    """The message says which address, and why."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SettingsError, match=f"cannot listen on 127.0.0.1:{port}: Address already in use"):
            sockets.open_all(GatewaySettings(port=port))


def test_an_address_of_ipv6_on_a_host_without_it_stops_the_start(monkeypatch):
    """The message says which address, and why."""

    class WithoutIpv6(socket.socket):
        def __init__(self, family=socket.AF_INET, *others, **named):
            if family == socket.AF_INET6:
                raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))
            super().__init__(family, *others, **named)

    monkeypatch.setattr(socket, "socket", WithoutIpv6)
    with pytest.raises(SettingsError, match="cannot listen on ::1:8470: Address family not supported"):
        sockets.open_all(GatewaySettings(bind=("[::1]:8470",)))


def test_a_socket_made_elsewhere_is_adopted():
    """A child process finds the socket at descriptor 3 and names its address; LISTEN_PID is empty."""
    program = (
        "import os; from foliot_gateway.http import sockets as listen; "
        "from foliot_gateway.settings import GatewaySettings\n"
        "adopted, made = listen.open_all(GatewaySettings())\n"
        "print(*[s.getsockname()[1] for s in adopted], len(made), os.get_inheritable(3))"
    )
    with socket.create_server(("127.0.0.1", 0)) as parents:
        port = parents.getsockname()[1]
        done = subprocess.run(
            ["/bin/sh", "-c", 'exec "$0" -c "$1" 3<&0', sys.executable, program],
            env={**os.environ, "LISTEN_FDS": "1", "LISTEN_PID": ""},
            stdin=parents,
            capture_output=True,
            text=True,
            check=True,
        )

    assert f"{port} 0 False\n" == done.stdout


def test_a_descriptor_that_is_no_stream_socket_stops_the_start(tmp_path):
    """A file or a datagram socket in the place of a listener is named as such."""
    with (tmp_path / "file").open("w") as file, pytest.raises(SettingsError, match="is no socket"):
        sockets._adopt(file.fileno())
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with pytest.raises(SettingsError, match="no stream socket"):
        sockets._adopt(datagrams.detach())


def test_the_gateway_reaches_itself_under_an_address_that_works():
    """The wildcard is no destination."""
    with socket.create_server(("0.0.0.0", 0)) as anywhere:
        assert f"http://127.0.0.1:{anywhere.getsockname()[1]}" == sockets.url(anywhere)
