"""Which paths count as one: what routers say, both ways, beyond doubt."""

from __future__ import annotations

import pytest

from foliot_probe.core.measure.known_routes import UNKNOWN, KnownRoutes

SECOND = 1_000_000_000
PAIR = "node1", "rail0"
FORTH, BACK = (11, 21, 31), (32, 22, 12)


@pytest.fixture
def routes():
    """The peer has told of the ways back of four paths."""
    made = KnownRoutes()
    for row in range(4):
        made.told(row, BACK, SECOND)
    return made


def test_paths_with_the_same_routers_are_one(routes):
    """Between the same NICs; one other port makes another path."""
    first = routes.of(0, PAIR, FORTH, SECOND)
    assert first != UNKNOWN
    assert routes.of(1, PAIR, FORTH, SECOND) == first
    assert routes.of(2, PAIR, (11, 23, 31), SECOND) not in {first, UNKNOWN}
    assert routes.of(3, ("node2", "rail0"), FORTH, SECOND) not in {first, UNKNOWN}


@pytest.mark.parametrize(
    ("hops", "back"),
    [
        (None, BACK),
        ((), ()),
        ((11, 0, 31), BACK),
        ((11, 21), BACK),
        (FORTH, (0, 22, 12)),
        (FORTH, (32, 22)),
        ((11, 21, 11), BACK),
        (FORTH, (31, 21, 11)),
        (FORTH, (32, 21, 12)),
    ],
    ids=[
        "in doubt", "no router answers", "a silent router", "the last one is silent", "the last one is silent to the peer",
        "the ways differ in length", "twice by one router", "routers with one address", "one router with one address",
    ],
)  # fmt: skip
def test_what_routers_leave_open_is_not_known(routes, hops, back):
    """Two such paths may take different links, whatever both have in common."""
    routes.told(0, back, SECOND)
    assert routes.of(0, PAIR, hops, SECOND) == UNKNOWN


def test_a_peer_that_says_nothing_more_is_not_believed_for_ever(routes):
    """It says all of it each half minute."""
    assert routes.of(0, PAIR, FORTH, 91 * SECOND) != UNKNOWN
    assert routes.of(0, PAIR, FORTH, 92 * SECOND) == UNKNOWN
    routes.told(0, BACK, 92 * SECOND)
    assert routes.of(0, PAIR, FORTH, 92 * SECOND) != UNKNOWN
    routes.end([0])
    assert routes.of(0, PAIR, FORTH, 92 * SECOND) == UNKNOWN
