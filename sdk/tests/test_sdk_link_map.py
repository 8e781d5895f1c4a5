"""Links of paths, from what their packets found."""

from ipaddress import IPv4Address

import numpy as np
import pytest

from foliot.link_map import UNNAMED, LinkMap, as_told, inferred_link, is_between_routers, is_inferred
from foliot_schemas import HopBatch, HopRow

NEAR, FAR, OTHER = "a.r0>b.r0#0", "a.r0>c.r0#0", "a.r0>c.r0#1"
NEAR_BACK, FAR_BACK, OTHER_BACK = "b.r0>a.r0#0", "c.r0>a.r0#0", "c.r0>a.r0#1"
BACK = ["10.0.9.0", "10.1.9.1", "10.1.0.2"]


def told(node, **hops):
    """A batch of a node: per path, its routers' addresses; an empty one did not answer."""
    rows = [
        (place, hop, int(IPv4Address(address)))
        for place, routers in enumerate(hops.values())
        for hop, address in enumerate(routers, 1)
        if address
    ]
    return HopBatch.of(np.array(rows, HopRow), node=node, at_ns=1, paths=tuple(hops))


@pytest.fixture
def links():
    """A map of three paths, one under a leaf, two over spines; and of the ways back."""
    known = LinkMap()
    known.take(
        told(
            "a", **{NEAR: ["10.0.0.0"], FAR: ["10.0.0.0", "10.1.0.1", "10.1.0.8"], OTHER: ["10.0.0.0", "", "10.1.0.9"]}
        )
    )
    known.take(told("b", **{NEAR_BACK: ["10.0.0.4"]}))
    known.take(told("c", **{FAR_BACK: BACK, OTHER_BACK: BACK}))
    return known


def test_a_path_has_the_links_between_its_ends(links):
    """The first router's port is the other end of the NIC's own link."""
    assert links.of(NEAR) == ("a.r0/out", "b.r0/in")
    assert links.of(FAR) == ("a.r0/out", "10.1.0.1", "10.1.0.8", "c.r0/in")


def test_a_router_that_is_silent_leaves_its_link_unnamed(links):
    """A wrong name would blame a link that others share."""
    assert links.of(OTHER) == ("a.r0/out", UNNAMED, "10.1.0.9", "c.r0/in")
    assert [is_between_routers(link) for link in links.of(OTHER)] == [False, False, True, False]


def test_a_link_that_delays_tell_of_has_a_name_of_its_own():
    """By the first of its paths; it is between routers, and no router's address."""
    link = inferred_link([OTHER, NEAR])
    assert link == f"inferred:{min(NEAR, OTHER)}"
    assert [is_inferred(each) for each in (link, "10.1.0.1", "a.r0/out", UNNAMED)] == [True, False, False, False]
    assert is_between_routers(link)


def test_what_is_told_again_is_no_news(links):
    """A node tells all of it each half minute."""
    assert links.take(told("a", **{NEAR: ["10.0.0.0"]})) == ([], [])
    assert links.take(told("a", **{NEAR: ["10.0.0.2"]})) == ([], [])
    assert links.take(told("a", **{FAR: ["10.0.0.0", "10.1.0.3", "10.1.0.10"]})) == ([FAR], [])
    assert links.take(told("a", **{FAR: ["10.0.0.0", "10.1.0.3", "10.1.0.10"]})) == ([], [])


def test_a_path_without_an_answer_and_one_of_a_node_that_left_have_no_links(links):
    """Neither can be told from one that nobody asked."""
    links.take(told("a", **{NEAR: []}))
    assert links.of(NEAR) == ()
    links.forget("a")
    assert (links.of(FAR), links.paths()) == ((), [NEAR_BACK, FAR_BACK, OTHER_BACK])


def test_paths_are_forgotten_by_name(links):
    """Also those that nobody told."""
    links.forget_paths([FAR, FAR_BACK, "d.r0>a.r0#0"])
    assert sorted(links.paths()) == [NEAR, OTHER, NEAR_BACK, OTHER_BACK]


def test_paths_that_share_a_link_share_its_name(links):
    """A fleet has many more paths than links."""
    assert links.of(NEAR)[0] is links.of(FAR)[0]
    links.take(told("b", **{"b.r0>c.r0#0": ["10.0.0.2", "10.1.0.3", "10.1.0.8"]}))
    assert links.of("b.r0>c.r0#0")[2] is links.of(FAR)[2]


def test_until_the_way_back_is_told_the_last_router_may_be_missing():
    """Its node tells of it, and so of both. A node that tells no more leaves it open again."""
    links = LinkMap()
    assert links.take(told("a", **{FAR: ["10.0.0.0", "10.1.0.1", "10.1.0.8"]})) == ([FAR], [])
    assert links.of(FAR) == ("a.r0/out", "10.1.0.1", "10.1.0.8", UNNAMED, "c.r0/in")
    assert as_told(links.of(FAR)) == ("a.r0/out", "10.1.0.1", "10.1.0.8", "c.r0/in")
    assert links.take(told("c", **{FAR_BACK: BACK})) == ([FAR_BACK], [FAR])
    assert links.of(FAR) == ("a.r0/out", "10.1.0.1", "10.1.0.8", "c.r0/in")
    assert links.of(FAR_BACK) == ("c.r0/out", "10.1.9.1", "10.1.0.2", "a.r0/in")
    assert links.take(told("c", **{FAR_BACK: []})) == ([FAR_BACK], [FAR])
    assert links.of(FAR)[-2:] == (UNNAMED, "c.r0/in")
    links.take(told("c", **{FAR_BACK: BACK}))
    links.forget("c")
    assert links.of(FAR)[-2:] == (UNNAMED, "c.r0/in")


@pytest.mark.parametrize(
    ("hops", "back", "missing"),
    [
        (["10.0.0.0", "10.1.0.1"], ["", *BACK[1:]], 1),
        (["10.0.0.0"], ["", "", BACK[2]], 2),
        (["10.0.0.0", "10.1.0.1"], ["", BACK[1]], 1),
        (["10.0.0.0"], BACK, 2),
        (["10.0.0.0", "10.1.0.1", "10.1.0.5", "10.1.0.7", "10.1.0.8"], BACK, 0),
        (["", "10.1.0.1", "10.1.0.8"], BACK[:2], 0),
    ],
    ids=[
        "the last one is silent", "the last two are", "so is the first one", "two in a row hide the others",
        "the way back is shorter", "the first one is silent",
    ],
)  # fmt: skip
def test_a_router_that_is_missing_at_the_end_leaves_its_link_unnamed(links, hops, back, missing):
    """The way back says so: whether its first router answers, and whether it is longer."""
    links.take(told("a", **{FAR: hops}))
    links.take(told("c", **{FAR_BACK: back}))
    found = links.of(FAR)
    between = tuple(hops[1:])
    assert found == ("a.r0/out", *between, *(UNNAMED,) * missing, "c.r0/in")
    assert as_told(found) == ("a.r0/out", *between, "c.r0/in")
    assert links.take(told("a", **{FAR: hops})) == links.take(told("c", **{FAR_BACK: back})) == ([], [])


def test_a_first_router_that_falls_silent_leaves_the_end_of_the_way_back_open(links):
    """Of the path itself nothing new is known: that router has no link of its own there."""
    quiet = {FAR: ["", "10.1.0.1", "10.1.0.8"]}
    before = links.of(FAR)
    assert links.take(told("a", **quiet)) == ([], [FAR_BACK])
    assert links.of(FAR_BACK) == ("c.r0/out", "10.1.9.1", "10.1.0.2", UNNAMED, "a.r0/in")
    assert links.of(FAR) == before
    assert links.take(told("a", **quiet)) == ([], [])
    assert links.take(told("a", **{FAR: ["10.0.0.0", "10.1.0.1", "10.1.0.8"]})) == ([], [FAR_BACK])
    assert UNNAMED not in links.of(FAR_BACK)


def test_a_path_that_is_not_to_be_known_is_not_kept(links):
    """Those that are known are not asked for again."""
    strange = "a.r0>nobody.r0#0"
    batch = told("a", **{NEAR: ["10.0.0.0"], strange: ["10.0.0.0"]})
    assert links.take(batch, {FAR}.__contains__) == ([], [])
    assert strange not in links.paths()
    assert links.take(batch, {strange}.__contains__) == ([strange], [])
