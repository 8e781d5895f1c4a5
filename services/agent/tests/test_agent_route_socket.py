"""Requests to the kernel: bytes that it carries out, many in one call, each with its own answer."""

from __future__ import annotations

import errno
import socket

import pytest
from pyroute2 import AsyncIPRoute
from pyroute2.netlink.rtnl.fibmsg import fibmsg
from pyroute2.netlink.rtnl.rtmsg import rtmsg

from foliot.node.addressing import describe
from foliot_agent.actuators.base import ActuatorError
from foliot_agent.actuators.overlay import OverlayActuator
from foliot_agent.core import route_requests
from foliot_agent.core.overlay_layout import Layout, Route, Rule
from foliot_agent.kernel.overlay_devices import Overlay
from foliot_agent.kernel.route_socket import RouteSocket
from foliot_schemas import Placement

_RULE = Rule(priority=7000, prefix="10.200.0.0/16", table=7100)


def route_to(last: int, *, gateway: str = "10.0.0.9") -> Route:
    """A route over the first NIC."""
    return Route(table=7000, destination=f"10.200.0.{last}", gateway=gateway, device="rail0", source="10.0.0.1")


def put(last: int, **what) -> route_requests.Request:
    """Puts it."""
    return route_requests.put_route(route_to(last, **what), socket.if_nametoindex("rail0"))


def read(kind, request):
    """A request as another reader of rtnetlink understands it."""
    message = kind(request.message)
    message.decode()
    return message


def test_a_route_is_as_another_reader_of_rtnetlink_understands_it():
    """Also what a kernel would tell of only later, such as its features."""
    message = read(rtmsg, route_requests.put_route(route_to(7), 5, features=16))
    assert [message[key] for key in ("family", "dst_len", "proto", "scope", "type", "flags")] == [2, 32, 4, 0, 1, 4]
    wanted = {"DST": "10.200.0.7", "GATEWAY": "10.0.0.9", "OIF": 5, "PREFSRC": "10.0.0.1", "TABLE": 7000}
    assert {key: message.get_attr(f"RTA_{key}") for key in wanted} == wanted
    assert message.get_attr("RTA_METRICS").get_attr("RTAX_FEATURES") == 16
    assert message["header"]["length"] == len(message.data)


def test_a_rule_is_as_another_reader_of_rtnetlink_understands_it():
    """A prefix of addresses, a priority and a table."""
    message = read(fibmsg, route_requests.put_rule(_RULE))
    wanted = {"DST": "10.200.0.0", "PRIORITY": 7000, "TABLE": 7100}
    assert {key: message.get_attr(f"FRA_{key}") for key in wanted} == wanted
    assert message["dst_len"] == 16


@pytest.mark.net
@pytest.mark.usefixtures("namespace")
async def test_each_request_of_a_call_has_its_own_answer(ip_here):
    """More than go into one system call; those that are refused keep no other from being carried out."""
    refused = {5, 100}
    async with RouteSocket() as kernel:
        requests = [
            put(last, gateway="10.0.0.1" if last in refused else "10.0.0.9")  # a gateway that is one's own address
            for last in range(1, 201)
        ]
        codes = await kernel.change(requests)
    assert {index + 1: code for index, code in enumerate(codes) if code} == dict.fromkeys(refused, errno.EINVAL)
    there = {int(line.split()[0].rpartition(".")[2]) for line in ip_here("route show table 7000").splitlines()}
    assert there == set(range(1, 201)) - refused


@pytest.mark.net
@pytest.mark.usefixtures("namespace")
async def test_routes_and_rules_go_as_they_came(ip_here):
    """Of what is not there, or is there already, the kernel says so."""
    routes = [route_to(1), route_to(2)]
    async with RouteSocket() as kernel:
        assert await kernel.change([put(1), put(2), put(2), route_requests.put_rule(_RULE)]) == [0, 0, 0, 0]
        assert await kernel.change([route_requests.put_rule(_RULE)]) == [errno.EEXIST]
        assert "7000:\tfrom all to 10.200.0.0/16 lookup 7100" in ip_here("rule")
        gone = [*map(route_requests.remove_route, routes), route_requests.remove_rule(_RULE)]
        assert await kernel.change(gone) == [0, 0, 0]
        assert await kernel.change(gone) == [errno.ESRCH, errno.ESRCH, errno.ENOENT]
    assert ip_here("route show table 7000") == ""


@pytest.mark.net
@pytest.mark.usefixtures("namespace")
async def test_answers_that_do_not_fit_into_the_buffer_are_no_answers(monkeypatch):
    """The requests were carried out, but nobody can know; the next call is answered as ever."""
    monkeypatch.setattr("foliot_agent.kernel.route_socket._AT_ONCE", 200)
    async with RouteSocket() as kernel:
        kernel._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        codes = await kernel.change([put(last) for last in range(1, 201)])
        assert set(codes) == {0, errno.ENOBUFS}
        assert await kernel.change([put(1), put(2, gateway="10.0.0.1")]) == [0, errno.EINVAL]


@pytest.fixture
async def actuator(namespace, settings_of):
    """A real one, with two peers of which the first is armed."""
    layout, peers = Layout.of(settings_of(0)), [describe(settings_of(index)) for index in (1, 2)]
    async with AsyncIPRoute(strict_check=True) as netlink, RouteSocket() as kernel:
        overlay = Overlay(netlink, layout)
        await overlay.build()
        made = OverlayActuator(netlink, kernel, layout)
        await made.adopt()
        for peer in peers:
            await overlay.join(peer)
            await made.welcome(peer)
        await made.arm(_BACKUP)
        made.overlay = overlay
        yield made


_BACKUP = Placement(peer="node1", rail="rail0", via="rail1", entropy=1)


@pytest.mark.net
async def test_what_is_armed_needs_no_more_than_to_be_sent(actuator, monkeypatch, ip_here):
    """Its message was encoded before, and again when another backup was armed."""
    other = Placement(peer="node1", rail="rail0", via="rail1", entropy=0)
    await actuator.arm(other)

    def never(*_: object) -> None:
        raise AssertionError("encoded only now")

    monkeypatch.setattr(route_requests, "put_route", never)
    await actuator.place(other)
    assert "dev fo1e0 " in ip_here("route get 10.200.0.2")


@pytest.mark.net
async def test_a_backup_over_a_device_that_was_made_anew_is_taken_over_the_new_one(actuator, ip_here):
    """The kernel gives it another number, which the message of before does not have."""
    ip_here("link del fo1e1")
    async with AsyncIPRoute() as netlink:
        await Overlay(netlink, actuator._layout).build()
    await actuator.renew(("node1", "rail0"))
    await actuator.place(_BACKUP)
    assert "dev fo1e1 " in ip_here("route get 10.200.0.2")


@pytest.mark.net
async def test_of_several_routes_those_are_in_force_that_the_kernel_took(actuator, ip_here):
    """The error names the other one."""
    ip_here("link del fo1e1")
    two = (("node1", 1), ("node2", 0))
    placements = [Placement(peer=peer, rail="rail0", via="rail1", entropy=entropy) for peer, entropy in two]
    with pytest.raises(ActuatorError, match=r"^route to 10\.200\.0\.2 by fo1e1: "):
        await actuator.place(*placements)
    assert actuator.routing.placements["node1", "rail0"].via == "rail0"
    assert actuator.routing.placements["node2", "rail0"] == placements[1]
    assert "dev fo1e0 " in ip_here("route get 10.200.0.3")
