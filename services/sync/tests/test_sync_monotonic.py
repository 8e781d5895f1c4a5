"""What sync passes on of the clock by which hosts stamp the packets of TCP."""

from __future__ import annotations

import pytest

SECOND = 1_000_000_000


def test_who_tells_its_monotonic_clock_has_it_said_at_the_time_of_its_state(start):
    """So a peer knows what it shows at any reference time; of who does not tell, nothing is known."""
    run = start(seed=3, nodes=4, load=0.0)
    fleet = run.fleet
    fleet.monotonic_ppb = {1: 20_000.0, 2: -40_000.0}
    run.to(12)
    for node, rate_ppb in fleet.monotonic_ppb.items():
        state = run.states[f"node{node}"]
        assert state.monotonic_ppb == rate_ppb
        for later_s in (0, 3):
            local_ns = state.as_of_ns + later_s * SECOND
            shown_ns = state.monotonic_at_ns(state.reference_ns(local_ns))
            assert shown_ns == pytest.approx(fleet.monotonic_ns(node, local_ns), abs=5)
    for node in (0, 3):
        assert (run.states[f"node{node}"].monotonic_ns, run.states[f"node{node}"].monotonic_ppb) == (0, 0.0)


def test_a_node_that_tells_it_no_longer_has_none(start):
    """An administrator has changed `tcp_timestamps`."""
    run = start(seed=3, nodes=4, load=0.0)
    run.fleet.monotonic_ppb = {1: 20_000.0}
    run.to(8)
    assert run.states["node1"].monotonic_ns
    run.fleet.monotonic_ppb = {}
    run.next()
    assert run.states["node1"].monotonic_ns == 0
