"""Link messages, from a real kernel in a network namespace of the test's own."""

from __future__ import annotations

import ast
import subprocess
import sys
import textwrap

import pytest

from foliot.node.rtnetlink import read
from patience import patience

pytestmark = pytest.mark.net

CODE = textwrap.dedent("""
    import asyncio, subprocess
    from foliot.node.link_monitor import LinkMonitor

    def ip(*words):
        subprocess.run(["ip", *words], check=True)

    async def main():
        changes = []
        ip("link", "add", "near", "type", "veth", "peer", "far")
        ip("link", "set", "near", "up")
        ip("link", "set", "far", "up")
        # The kernel tells of a carrier when it finds the time.
        while "LOWER_UP" not in subprocess.run(["ip", "link", "show", "near"], check=True, capture_output=True, text=True).stdout:
            await asyncio.sleep(0.01)
        async with LinkMonitor(changes.append) as monitor:
            present = {change.name: change for change in await monitor.present()}
            assert present["near"].carrier and present["near"].admin_up, present
            steps = (
                (("set", "far", "down"), lambda now: not now.carrier),
                (("set", "far", "up"), lambda now: now.carrier),
                (("set", "near", "down"), lambda now: not now.admin_up),
                (("del", "near"), lambda now: now.gone),
            )
            async with asyncio.timeout(PATIENCE_S):
                for words, is_told in steps:
                    ip("link", *words)
                    # A busy kernel tells of two changes of a carrier in one message, if the second comes before it has told the first.
                    while not is_told(next((change for change in reversed(changes) if change.name == "near"), present["near"])):
                        await asyncio.sleep(0.01)
        # The kernel may still be telling what is present already.
        states = [(True, True, 0, False)]
        for change in changes:
            state = (change.carrier, change.admin_up, change.carrier_down_count - present["near"].carrier_down_count, change.gone)
            if change.name == "near" and state not in states[-1:]:
                states.append(state)
        print(states)

    asyncio.run(main())
""")


def said(program: str) -> str:
    """What a Python program prints in a network namespace of its own."""
    done = subprocess.run(
        ["unshare", "--net", "--map-root-user", sys.executable, "-c", f"PATIENCE_S = {patience(60)}\n{program}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_carrier_loss_return_and_an_administrators_down_are_told_apart():
    """As the kernel tells them: carrier lost while up, carrier back, set down, gone."""
    told = said(CODE)
    states = ast.literal_eval(told)
    assert states[1:3] == [(False, True, 1, False), (True, True, 1, False)]
    assert (False, False, 2, False) in states
    assert states[-1][3] is True


STALE = textwrap.dedent("""
    import asyncio, subprocess
    from foliot.node import rtnetlink
    from foliot.node.link_monitor import LinkMonitor

    def ip(line):
        subprocess.run(["ip", "-batch", "-"], input=line, text=True, check=True)

    async def main():
        ip("link add near type veth peer far\\nlink set near up\\nlink set far up\\nlink add old type bridge")
        changes = {}

        def tell(change):
            changes[change.name] = change

        read = rtnetlink.links

        async def late():
            # The answer is on its way when things happen, of which the messages are read before or after it.
            found = await read()
            if not happened:
                happened.append(True)
                ip("link set far down\\nlink del old")
                await asyncio.sleep(pause_s)
            return found

        rtnetlink.links = late
        for pause_s in (0, 0.05):
            happened = []
            async with LinkMonitor(tell) as monitor:
                for change in await monitor.present():
                    tell(change)
                async with asyncio.timeout(PATIENCE_S):
                    while changes["near"].carrier or not changes["old"].gone:
                        await asyncio.sleep(0.01)
                await asyncio.sleep(0.1)  # nothing more is told
                print(changes["near"].carrier, changes["old"].gone)
            ip("link set far up\\nlink add old type bridge")

    asyncio.run(main())
""")


def test_an_older_answer_overrules_no_newer_message():
    """What the kernel said before something happened is read after the message of it.

    A lost carrier stays lost, and what is gone stays gone.
    """
    assert said(STALE).splitlines() == ["False True"] * 2


CHURN = textwrap.dedent("""
    import asyncio, subprocess
    from foliot.node.link_monitor import LinkMonitor

    async def main():
        changes = []
        async with LinkMonitor(changes.append) as monitor:
            await monitor.present()
            before = len(monitor._there), len(monitor._told)
            lines = "".join(f"link add near{number} type veth peer far{number}\\nlink del near{number}\\n" for number in range(20))
            subprocess.run(["ip", "-batch", "-"], input=lines, text=True, check=True)
            async with asyncio.timeout(PATIENCE_S):
                while sum(change.gone for change in changes) < 40:
                    await asyncio.sleep(0.01)
            print((len(monitor._there), len(monitor._told)) == before)

    asyncio.run(main())
""")


def test_nothing_is_remembered_of_devices_that_came_and_went():
    """As those of containers do, each with an index of its own."""
    assert said(CHURN).splitlines() == ["True"]


LOST = textwrap.dedent("""
    import asyncio, socket, subprocess
    from foliot.node.link_monitor import LinkMonitor

    def ip(*lines):
        subprocess.run(["ip", "-batch", "-"], input="\\n".join(lines), text=True, check=True)

    async def main():
        ip("link add near type veth peer far", "link set near up", "link set far up", "link add old type bridge")
        changes, addresses = [], set()
        async with LinkMonitor(changes.append, addresses.add) as monitor:
            for change in await monitor.present():
                changes.append(change)
            monitor._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)  # the kernel makes it a few kilobytes
            # Nothing is read meanwhile, so that most messages are dropped, and the last ones surely.
            ip(*["link set far down", "link set far up"] * 20, "link set far down", "link del old", "addr add 10.0.0.1/24 dev near")
            def last(name):
                return next(change for change in reversed(changes) if change.name == name)
            async with asyncio.timeout(PATIENCE_S):
                while last("near").carrier or not last("old").gone or not addresses:
                    await asyncio.sleep(0.01)
            downs = last("near").carrier_down_count - next(each for each in changes if each.name == "near").carrier_down_count
            told = sum(not change.carrier for change in changes if change.name == "near")
            print(downs, told < 21, addresses)

    asyncio.run(main())
""")


def test_what_was_lost_in_a_full_queue_is_made_up_for():
    """The present state follows what was still queued.

    It has a lost carrier with all that were counted, a device that is gone, and a new address.
    """
    told = said(LOST)
    assert told.splitlines()[-1] == "21 True {'10.0.0.1'}"


FIND = textwrap.dedent("""
    import asyncio, subprocess
    from foliot.node.link_monitor import node_settings

    for words in (
        "link add eth7 type veth peer far", "addr add 10.16.0.6/24 dev eth7", "addr add 10.17.0.6/24 dev far", "link set eth7 up",
    ):
        subprocess.run(["ip", *words.split()], check=True)
    print([(nic.device, nic.address) for nic in asyncio.run(node_settings()).nics])
""")


def test_nics_are_found_by_the_addresses_that_the_kernel_has(monkeypatch):
    """One text for all nodes, given by the environment; a device that is down is found as well."""
    monkeypatch.delenv("FOLIOT_CONFIG", raising=False)
    monkeypatch.setenv("FOLIOT_NODE__NAME", "node3")
    monkeypatch.setenv("FOLIOT_NODE__INDEX", "3")
    rails = ", ".join(f'{{rail = "rail{n}", number = {n}, address = "10.{16 + n}.0.0/24"}}' for n in (0, 1))
    monkeypatch.setenv("FOLIOT_NODE__NICS", f"[{rails}]")
    told = said(FIND)
    assert ast.literal_eval(told) == [("eth7", "10.16.0.6"), ("far", "10.17.0.6")]


AS_OTHERS = textwrap.dedent("""
    import socket, subprocess
    from foliot.node import rtnetlink
    from pyroute2.netlink.rtnl import RTM_DELLINK, RTM_NEWADDR, RTMGRP_IPV4_IFADDR, RTMGRP_LINK
    from pyroute2.netlink.rtnl.ifinfmsg import IFF_LOWER_UP, IFF_UP
    from pyroute2.netlink.rtnl.marshal import MarshalRtnl

    def ip(*lines):
        subprocess.run(["ip", "-batch", "-"], input="\\n".join(lines), text=True, check=True)

    def by_pyroute2(message):
        if message["header"]["type"] == RTM_NEWADDR:
            return rtnetlink.LinkAddress(message["index"], message.get_attr("IFA_LOCAL") or message.get_attr("IFA_ADDRESS"))
        up = bool(message["flags"] & IFF_UP)
        return rtnetlink.LinkChange(
            name=message.get_attr("IFLA_IFNAME"), index=message["index"], admin_up=up,
            carrier=up and bool(message["flags"] & IFF_LOWER_UP),
            carrier_down_count=message.get_attr("IFLA_CARRIER_DOWN_COUNT") or 0,
            carrier_up_count=message.get_attr("IFLA_CARRIER_UP_COUNT") or 0,
            gone=message["header"]["type"] == RTM_DELLINK, mtu=message.get_attr("IFLA_MTU") or 0,
        )

    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as told:
        told.bind((0, RTMGRP_LINK | RTMGRP_IPV4_IFADDR))
        ip("link add near mtu 1400 type veth peer far", "link add hub type bridge", "link set far master hub",
           "link set near up", "link set far up", "addr add 10.0.0.1/24 dev near", "addr add fd00::1/64 dev near",
           "link set far down", "link set far up", "link set near down", "link del near", "link del hub")
        told.settimeout(2)
        datagrams = []
        while not datagrams or [each["name"] for each in gone] != ["hub"]:
            datagrams.append(told.recv(65536))
            found = list(rtnetlink.read(datagrams[-1]))
            gone = [{"name": each.name} for each in found if isinstance(each, rtnetlink.LinkChange) and each.gone]
    marshal, all_told, bridges = MarshalRtnl(), [], 0
    for data in datagrams:
        for message in marshal.parse(data):
            if message["header"]["type"] != RTM_NEWADDR and message["family"]:
                bridges += 1
            elif message["family"] in {0, socket.AF_INET}:
                all_told.append(by_pyroute2(message))
    assert all_told == [each for data in datagrams for each in rtnetlink.read(data)]
    print(bridges > 0, len(all_told) > 10, [each.address for each in all_told if isinstance(each, rtnetlink.LinkAddress)], {each.mtu for each in all_told if isinstance(each, rtnetlink.LinkChange)} >= {1400, 1500})
""")


def test_links_and_addresses_are_read_as_pyroute2_reads_them():
    """All that a kernel tells of devices that come, change and go; what a bridge tells of its ports is passed over."""
    assert said(AS_OTHERS) == "True True ['10.0.0.1'] True\n"


def test_bytes_that_are_cut_short_tell_nothing():
    """A message of which only a part was read is none."""
    for length in range(32):
        assert list(read(bytes([16, 0, 0, 0, 16, 0]) + bytes(length))) == []
