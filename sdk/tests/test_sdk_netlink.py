"""Link messages, from a real kernel in a network namespace of the test's own."""

from __future__ import annotations

import ast
import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.net

CODE = textwrap.dedent("""
    import asyncio, subprocess
    from foliot.netlink import LinkMonitor

    def ip(*words):
        subprocess.run(["ip", *words], check=True)

    async def main():
        changes = []
        ip("link", "add", "near", "type", "veth", "peer", "far")
        ip("link", "set", "near", "up")
        ip("link", "set", "far", "up")
        async with LinkMonitor(changes.append) as monitor:
            present = {change.name: change for change in await monitor.present()}
            assert present["near"].carrier and present["near"].admin_up, present
            for words in (("far", "down"), ("far", "up"), ("near", "down")):
                ip("link", "set", *words)
            ip("link", "del", "near")
            async with asyncio.timeout(patience(20)):
                while not any(change.gone for change in changes):
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


def test_carrier_loss_return_and_an_administrators_down_are_told_apart():
    """As the kernel tells them: carrier lost while up, carrier back, set down, gone."""
    told = subprocess.run(
        ["unshare", "--net", "--map-root-user", sys.executable, "-c", CODE], capture_output=True, text=True, check=False
    )

    assert told.returncode == 0, told.stderr
    states = ast.literal_eval(told.stdout)
    assert states[1:3] == [(False, True, 1, False), (True, True, 1, False)]
    assert (False, False, 2, False) in states
    assert states[-1][3] is True


FIND = textwrap.dedent("""
    import asyncio, subprocess
    from foliot.netlink import node_settings

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
    told = subprocess.run(
        ["unshare", "--net", "--map-root-user", sys.executable, "-c", FIND], capture_output=True, text=True, check=False
    )

    assert told.returncode == 0, told.stderr
    assert ast.literal_eval(told.stdout) == [("eth7", "10.16.0.6"), ("far", "10.17.0.6")]
