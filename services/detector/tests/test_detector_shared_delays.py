"""Which paths share a queue, by their delays and by what their flows carry."""

from __future__ import annotations

import numpy as np
import pytest

from foliot_detector.core.detectors.contention.shared_delays import shared_delays

LINE, MS = 100e6, 1e6


def queue(seed, begins=20, swing=0.3):
    """A queue of some 10 ms that begins to stand at a tenth of fifty, and varies."""
    chance = np.random.default_rng(seed)
    level = 10 * MS * (1 + swing * chance.uniform(-1, 1, 50))
    level[:begins] = 0.0
    return level


def seen(*queues, noise=0.02):
    """What is seen of each."""
    chance = np.random.default_rng(9)
    return np.array([each * (1 + noise * chance.standard_normal(50)) + chance.exponential(5e3, 50) for each in queues])


def groups(excess_ns, *rates):
    """The places of paths that share a queue."""
    found = shared_delays(excess_ns, 50e3, LINE * np.array(rates), LINE)
    return [group.places for group in found]


def test_paths_that_rise_together_and_carry_what_a_link_does_share_it():
    """Also where one of them was heard less often; the correlation says how alike they are."""
    one = queue(1)
    excess_ns = seen(one, one, one)
    excess_ns[2, ::3] = np.nan
    assert groups(excess_ns, 0.3, 0.4, 0.25) == [(0, 1, 2)]
    (found,) = shared_delays(excess_ns, 50e3, LINE * np.array([0.3, 0.4, 0.25]), LINE)
    assert 0.9 < found.correlation <= 1


def test_a_queue_that_has_stood_for_all_that_time_is_told_by_how_it_varies():
    """None of it is seen to rise."""
    one = queue(1, begins=0)
    assert groups(seen(one, one), 0.5, 0.5) == [(0, 1)]
    assert groups(seen(one, queue(2, begins=0)), 0.5, 0.5) == []


@pytest.mark.parametrize("later", [5, 12])
def test_paths_that_rise_one_after_the_other_share_nothing(later):
    """Half a second and more apart, though they carry no more together than a link does."""
    assert groups(seen(queue(1), queue(2, begins=20 + later)), 0.5, 0.5) == []


def test_queues_of_other_heights_are_others():
    """One has half of the other."""
    one = queue(1)
    assert groups(seen(one, one / 2), 0.5, 0.5) == []


def test_heights_are_compared_where_both_were_heard():
    """A receiver that was not heard for a second says nothing of a queue that grew meanwhile."""
    one = queue(1)
    one[-10:] *= 2
    excess_ns = seen(one, one)
    excess_ns[1, -10:] = np.nan
    assert groups(excess_ns, 0.5, 0.5) == [(0, 1)]


def test_two_links_that_fill_up_in_one_moment_are_two():
    """They carry twice what a link does, and vary differently."""
    one, other = queue(1), queue(2)
    assert groups(seen(one, other, one, other), 0.5, 0.5, 0.5, 0.5) == [(0, 2), (1, 3)]


def test_some_of_two_links_that_carry_as_much_as_one_are_not_one():
    """Two are alike, and of two others nothing is clear: they may be on the same links, crosswise."""
    steps = queue(1)
    one, other = 0.8 * steps + 0.2 * queue(2), 0.8 * steps + 0.2 * queue(3)
    excess_ns = seen(one, other, one, other)
    chance = np.random.default_rng(4)
    excess_ns[2:] *= chance.uniform(0.4, 1.3, (2, 50))
    assert groups(excess_ns, 0.5, 0.5, 0.5, 0.5) == []


def test_where_both_vary_alike_nothing_is_said():
    """As where the steps of the same jobs begin and end on both."""
    steps = queue(1)
    one, other = 0.5 * steps + 0.5 * queue(2), 0.5 * steps + 0.5 * queue(3)
    assert groups(seen(one, other, one, other, noise=0.05), 0.5, 0.5, 0.5, 0.5) == []


def test_flat_queues_of_two_links_are_not_told_apart():
    """Nothing varies but by noise."""
    one = queue(1, swing=0.0)
    assert groups(seen(one, one, one, one), 0.5, 0.5, 0.5, 0.5) == []


def test_flows_that_carry_less_than_a_link_have_to_vary_clearly_alike():
    """Others fill the link then, or two, of which nobody tells."""
    one, other = queue(1), queue(2)
    assert groups(seen(one, one), 0.2, 0.2) == [(0, 1)]
    assert groups(seen(one, other), 0.2, 0.2) == []


def test_links_that_fill_up_one_after_the_other_are_two():
    """Each is told by when it rises."""
    one, other = queue(1, begins=20, swing=0.0), queue(2, begins=32, swing=0.0)
    assert groups(seen(one, other, one, other), 0.5, 0.5, 0.5, 0.5) == [(0, 2), (1, 3)]


def test_what_was_heard_for_a_moment_alone_tells_nothing():
    """Less than eight tenths of a second."""
    one = queue(1, begins=44)
    assert groups(seen(one, one), 0.5, 0.5) == []


def test_a_fabric_of_which_nothing_is_known_has_no_line():
    """No NIC has carried anything yet."""
    one = queue(1, swing=0.0)
    assert shared_delays(seen(one, one), 50e3, LINE * np.array([0.5, 0.5]), 0.0) == []
