"""``foliot drain``: what it writes, lists and refuses."""

from __future__ import annotations

import asyncio
import json

import pytest

from foliot import cli
from foliot.cli.drain import objection
from foliot_schemas import Drain, Nic, Node
from foliot_schemas.subjects import DRAINS, INVENTORY
from patient_bus import connected


def node(index):
    """A node."""
    name = f"node{index}"
    nic = Nic(
        name=f"{name}.rail0", rail="rail0", device="eth0", address=f"10.0.0.{index}", clock=name,
        service_address=f"10.200.0.{index}", path_addresses=(), entropies=(),
    )  # fmt: skip
    return Node(name=name, nics=(nic,))


FLEET = {each.name: each for each in (node(0), node(1))}


@pytest.mark.parametrize(
    ("wish", "is_drained", "why"),
    [
        ({"node": "node0"}, False, None),
        ({"node": "node9"}, False, "the fleet has no node node9"),
        ({"node": "node9", "over": True}, True, None),
        ({"node": "node9", "over": True}, False, "the fleet has no node node9"),
        ({"node": "a/b"}, False, "cannot be a name"),
        ({"node": "node0", "reason": "x" * 4_097}, False, "reason"),
    ],
)
def test_only_nodes_of_the_fleet_are_drained(wish, is_drained, why):
    """One that left the fleet can still be undone."""
    said = objection(Drain(at_ns=1, **wish), FLEET, is_drained=is_drained)
    assert said is None if why is None else why in said


@pytest.mark.parametrize("words", [["--undo"], ["--reason", "x"]])
def test_a_wish_is_about_a_node(words, capsys):
    """A list takes no reason."""
    assert cli.main(["drain", *words]) == 2
    assert capsys.readouterr().err == "foliot drain: name the node\n"


def test_a_bus_that_is_away_is_said(kept_port, capsys):
    """With a status of its own."""
    assert cli.main(["drain", "node0", "--bus", f"nats://127.0.0.1:{kept_port}"]) == 1
    assert "foliot drain: the bus does not answer" in capsys.readouterr().err


@pytest.fixture
async def fleet(bus_settings):
    """A bus with an inventory."""
    async with connected(bus_settings) as bus:
        for each in FLEET.values():
            await bus.put(INVENTORY, each.name, each)
        yield bus


@pytest.fixture
def drain(bus_settings, capsys):
    """Runs the command; gives its status, and what it said."""

    async def run(*words):
        status = await asyncio.to_thread(cli.main, ["drain", *words, "--bus", bus_settings.url])
        said = capsys.readouterr()
        return status, said.out + said.err

    return run


@pytest.mark.nats
async def test_a_node_is_drained_until_that_is_undone(fleet, drain):
    """Who and why is kept. The same wish again is the same, and its end tells who ended it."""
    assert await drain() == (0, "no node is drained\n")
    assert await drain("node0", "--reason", "a loud fan") == (0, "node0 is drained: its ranks go where spares are\n")
    first = await fleet.get(DRAINS, "node0")
    assert (first.node, first.reason, first.over) == ("node0", "a loud fan", False)
    assert "@" in first.by
    assert await drain("node0", "--reason", "a fan") == (0, "node0 is drained already\n")
    second = await fleet.get(DRAINS, "node0")
    assert (second.at_ns, second.reason) == (first.at_ns, "a fan")
    status, listed = await drain()
    assert status == 0
    assert listed.startswith("node0 is drained since 20")
    assert listed.endswith(": a fan\n")
    assert await drain("node0", "--undo") == (0, "node0 may be used again\n")
    assert (await fleet.get(DRAINS, "node0")).over
    assert await drain() == (0, "no node is drained\n")
    assert await drain("node0", "--undo") == (0, "node0 is not drained\n")


@pytest.mark.nats
async def test_what_it_says_can_be_read_by_programs(fleet, drain):
    """One object for each node."""
    _, written = await drain("node1", "--json")
    _, listed = await drain("--json")
    assert json.loads(written) == json.loads(listed)
    assert json.loads(listed)["node"] == "node1"


@pytest.mark.nats
async def test_a_node_that_the_fleet_does_not_have_is_refused(fleet, drain):
    """A misspelt name would be kept for ever."""
    assert await drain("node7") == (2, "foliot drain: the fleet has no node node7\n")
    assert await fleet.get(DRAINS, "node7") is None
