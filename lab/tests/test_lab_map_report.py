"""What Foliot makes of the routers that answer, held against the fabric: right, wrong, or not known."""

from __future__ import annotations

import asyncio
from ipaddress import IPv4Address

import numpy as np
import pytest

from foliot_lab.measure.clock_truth import LabTime
from foliot_lab.measure.told_routers import ToldRouters
from foliot_lab.report.map_report import MapReport, map_report
from foliot_lab.scenario.spec import FabricSpec
from foliot_lab.scenario.topology import plan
from foliot_schemas import Event, HopBatch
from foliot_schemas.hops import HopRow

FABRIC = plan(FabricSpec(hosts=4, rails=1, leaves=2, spines=2), 7)
PATH = "node0.rail0>node2.rail0#0"
NEAR = "node0.rail0>node1.rail0#0"
TRUTH = {
    PATH: FABRIC.links_between("node0", "node2", "rail0", "rail0.spine1"),
    NEAR: FABRIC.links_between("node0", "node1", "rail0", None),
}


def entered(link, end):
    """The address of the port by which a link is entered."""
    return getattr(FABRIC.links[link], end).address.partition("/")[0]


LEAF = entered("node0.rail0", "far")
ANSWERS = (LEAF, entered("rail0.leaf0-spine1", "far"), entered("rail0.leaf1-spine1", "near"))
OTHER_SPINE = entered("rail0.leaf0-spine0", "far")
FAR_LEAF = entered("node2.rail0", "far")
BACK = FAR_LEAF, entered("rail0.leaf1-spine1", "far"), entered("rail0.leaf0-spine1", "near")


def judged(*answers, near=(LEAF,), back=BACK, events=()):
    """The report of what these routers answered, by hop, and on the way back; None: it was silent."""

    async def tell():
        told = ToldRouters(LabTime.starting_now())
        for node, hops in (
            ("node0", {PATH: answers, NEAR: near}),
            ("node1", {"node1.rail0>node0.rail0#0": near and (entered("node1.rail0", "far"),)}),
            ("node2", {"node2.rail0>node0.rail0#0": back}),
        ):
            await told.hops(told_by(node, hops))
        return told

    return map_report(asyncio.run(tell()), TRUTH, FABRIC, events)


def told_by(node, hops):
    """What a node tells of its paths."""
    rows = np.array(
        [
            (number, hop, int(IPv4Address(address)))
            for number, found in enumerate(hops.values())
            for hop, address in enumerate(found, 1)
            if address is not None
        ],
        HopRow,
    )
    return HopBatch.of(rows, node=node, at_ns=1, paths=tuple(hops))


def test_all_links_of_all_paths():
    """In the lab's names, both ways over a spine and under one leaf."""
    assert TRUTH[PATH] == ("node0.rail0", "rail0.leaf0-spine1", "rail0.leaf1-spine1", "node2.rail0")
    found = judged(*ANSWERS)
    assert found == MapReport(paths=2, right=2, wrong=0, unknown=0, took_s=found.took_s)
    assert found.took_s == pytest.approx(0, abs=1)


def test_a_path_over_another_spine_is_wrong():
    """Also if the other routers are right, or one of them is silent."""
    for answers in ((LEAF, OTHER_SPINE, ANSWERS[2]), (LEAF, OTHER_SPINE, None), (LEAF, OTHER_SPINE)):
        found = judged(*answers)
        assert (found.right, found.wrong, found.unknown) == (1, 1, 0), answers


def test_a_silent_router_makes_a_path_unknown_and_not_wrong():
    """Of which none of its links is known, or some."""
    for answers in ((), (LEAF, None, ANSWERS[2])):
        found = judged(*answers)
        assert (found.right, found.wrong, found.unknown) == (1, 0, 1), answers


def test_a_last_router_that_is_silent_makes_a_path_unknown_and_not_wrong():
    """The way back lacks its first router, or nobody has told of it."""
    for back in ((None, *BACK[1:]), ()):
        found = judged(LEAF, ANSWERS[1], back=back)
        assert (found.right, found.wrong, found.unknown) == (1, 0, 1), back


def inferred(*paths):
    """An event about the link that these paths share."""
    link = f"inferred:{paths[0]}"
    return Event(
        id="f/fabric-contention", kind="contention", who=link, state="fabric-contention", at_ns=1, since_ns=1,
        related={"links": (link,), "paths": paths},
    )  # fmt: skip


def test_paths_that_are_said_to_share_a_link_are_inferred_if_they_do(monkeypatch):
    """Where routers are silent. One that shares none with the others is wrong."""
    beside = "node1.rail0>node3.rail0#1"
    monkeypatch.setitem(TRUTH, beside, FABRIC.links_between("node1", "node3", "rail0", "rail0.spine1"))
    found = judged(near=(), events=[inferred(PATH, beside)])
    assert (found.right, found.wrong, found.inferred, found.unknown) == (0, 0, 2, 1)
    found = judged(near=(), events=[inferred(PATH, beside, NEAR)])
    assert (found.right, found.wrong, found.inferred, found.unknown) == (0, 1, 2, 0)
    found = judged(*ANSWERS, events=[inferred(PATH, beside)])
    assert (found.right, found.wrong, found.inferred, found.unknown) == (2, 0, 1, 0)


def test_where_nothing_was_told_nothing_is_known():
    """And no time was taken."""
    nothing = map_report(ToldRouters(LabTime.starting_now()), TRUTH, FABRIC)
    assert nothing == MapReport(paths=2, right=0, wrong=0, unknown=2, took_s=None)
