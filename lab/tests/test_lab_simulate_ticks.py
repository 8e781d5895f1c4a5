"""What the first packet of a tick, which takes longer, does to the offset of two nodes that send alike or unlike."""

from __future__ import annotations

import numpy as np
import pytest

from foliot_lab.simulate.clocks.ticks import QUICK, SLOW, Probed, stamps

SECOND_NS = 1_000_000_000
IN_USE = Probed(0)


def bias_ns(ends, machine):
    """Half the difference of two directions' least delays, the mean over windows of two seconds; in truth it is 0."""
    random, least = np.random.default_rng(4), []
    directions = [stamps(streams, machine, 60, random) for streams in ends]
    for window in range(30):
        delays = []
        for sent_ns, received_ns in directions:
            chosen = sent_ns // (2 * SECOND_NS) == window
            delays.append((received_ns - sent_ns)[chosen].min())
        least.append((delays[0] - delays[1]) / 2)
    return float(np.mean(least))


@pytest.mark.parametrize("machine", [SLOW, QUICK], ids=["slow", "quick"])
def test_unlike_orders_of_sockets_make_no_bias(machine):
    """The stream's socket is the first one of one node, and the last one of the other.

    With sockets in order of their numbers, the bias is 14 to 19 ns.
    """
    first, last = [IN_USE, Probed(1)], [Probed(1), IN_USE]

    assert abs(bias_ns((first, last), machine)) < 6


def test_a_stream_that_is_alone_in_its_tick_has_the_second_of_its_pairs():
    """The other end has five, of which another is first as a rule."""
    assert abs(bias_ns(([IN_USE], [IN_USE] * 5), QUICK)) < 7
