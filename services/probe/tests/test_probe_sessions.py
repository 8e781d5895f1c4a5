"""Sessions: two ends and a lossy, reordering fabric between them, in virtual time."""

from __future__ import annotations

import numpy as np
import pytest

from foliot_probe.core.measure.sessions import DEPTH, Sessions
from foliot_probe.core.packet import ECHOES, FULL_COUNTS, KERNEL, PREDECESSORS

ROWS = 4
ROW = np.array([2])
OFFSET_NS = 7_000_000
DELAY_NS = 1_000


def ends():
    """Two ends that hold their stream in row 2."""
    first, second = Sessions(ROWS), Sessions(ROWS)
    first.open(2, 11)
    second.open(2, 22)
    return first, second


def compose(end, row=ROW, second=None):
    """The next probes of an end."""
    end.announce(np.int64(50_000), np.True_, np.int64(KERNEL), np.int64(40))
    small = np.zeros(len(row), np.bool_)
    return end.compose(row, small if second is None else second, small)


def hear(end, row, probes, receive_ns, full=None):
    """An end hears probes, none of them padded unless it is said."""
    end.hear(row, probes, receive_ns, np.zeros(len(row), np.bool_) if full is None else full)


def stamp(probes, base_ns):
    """A stamp for each probe that tells its sequence."""
    return base_ns + probes["sequence"] * 1_000_000


def exchange(first, second, rounds, *, lost_forth=frozenset(), lost_back=frozenset()):
    """Both ends send once a round; the second's clock is ahead."""
    for number in range(rounds):
        for end, other, lost, base_ns, other_ns in (
            (first, second, lost_forth, 10, 10 + OFFSET_NS),
            (second, first, lost_back, 20 + OFFSET_NS, 20),
        ):
            probes = compose(end)
            end.left(probes, stamp(probes, base_ns))
            if number not in lost:
                hear(other, ROW, probes, stamp(probes, other_ns + DELAY_NS))


def test_both_ends_complete_both_directions():
    """Without loss each end knows both stamps of every probe, but for those whose news still travels."""
    first, second = ends()
    exchange(first, second, 10)
    forth, back = first.outgoing.take_completed(), first.incoming.take_completed()
    assert forth.sequence.tolist() == list(range(10))
    assert (forth.receive_ns - forth.transmit_ns == OFFSET_NS + DELAY_NS).all()
    assert back.sequence.tolist() == list(range(9))
    assert (back.receive_ns - back.transmit_ns == DELAY_NS - OFFSET_NS).all()
    assert second.outgoing.take_completed().sequence.tolist() == list(range(9))
    assert second.incoming.take_completed().sequence.tolist() == list(range(9))


def test_completed_probes_are_taken_once():
    """What was taken does not come again, although its stamps go on being repeated in later probes."""
    first, second = ends()
    exchange(first, second, 6)
    first.incoming.take_completed()
    exchange(first, second, 2)
    assert first.incoming.take_completed().sequence.tolist() == [5, 6]


def test_stamps_survive_as_many_losses_as_there_are_repetitions():
    """A probe's transmit stamp still comes when all but one of its carriers are lost."""
    first, second = ends()
    exchange(first, second, 12, lost_forth={4, 5, 6})
    assert second.incoming.take_completed().sequence.tolist() == [0, 1, 2, 3, 7, 8, 9, 10]
    assert PREDECESSORS == 4


def test_a_longer_loss_costs_only_the_stamps_that_were_on_the_way():
    """When every carrier of a stamp is lost its probe stays incomplete, and later ones are not affected."""
    first, second = ends()
    exchange(first, second, 12, lost_forth={4, 5, 6, 7})
    assert second.incoming.take_completed().sequence.tolist() == [0, 1, 2, 8, 9, 10]


def test_echoes_bridge_lost_answers():
    """Receive stamps that lost answers would have brought come with the next one that arrives."""
    first, second = ends()
    exchange(first, second, 12, lost_back=set(range(2, 2 + ECHOES - 1)))
    assert first.outgoing.take_completed().sequence.tolist() == list(range(12))


def test_counts_are_what_the_sequence_numbers_prove():
    """Sent is what the numbers heard prove, received what was heard, each since the last count."""
    first, second = ends()
    exchange(first, second, 10, lost_forth={3, 4, 9})
    sent, received = second.count()
    assert (sent[2], received[2]) == (9, 7)
    exchange(first, second, 1)
    sent, received = second.count()
    assert (sent[2], received[2]) == (2, 1)
    assert second.count()[1].sum() == 0


def test_a_listener_that_joins_late_does_not_count_what_was_before():
    """The first probe heard begins the count, whatever its number."""
    first, second = ends()
    for _ in range(100):
        compose(first)
    hear(second, ROW, compose(first), np.array([5]))
    sent, received = second.count()
    assert (sent[2], received[2]) == (1, 1)


def test_reordered_and_duplicated_probes_count_once():
    """A batch that arrives backwards and twice is the same as one in order."""
    first, second = ends()
    probes = np.concatenate([compose(first) for _ in range(5)])
    mixed = np.concatenate([probes[::-1], probes])
    hear(second, np.full(len(mixed), 2), mixed, stamp(mixed, 100))
    sent, received = second.count()
    assert (sent[2], received[2]) == (5, 5)
    echo = compose(second)
    assert echo["heard"][0] == 4
    assert echo["receive_ns"][0][:5].tolist() == stamp(probes, 100)[::-1].tolist()


def test_probes_older_than_the_memory_are_left_alone():
    """A probe that comes a whole ring late does not displace the one that took its cell."""
    first, second = ends()
    late = compose(first)
    for _ in range(DEPTH):
        hear(second, ROW, compose(first), np.array([7]))
    second.count()
    hear(second, ROW, late, np.array([9]))
    assert second.count()[1][2] == 0


def test_a_peer_that_starts_anew_is_met_anew():
    """After a restart numbers begin at 0 again; nothing of the former life is mixed in."""
    first, second = ends()
    exchange(first, second, 10)
    second.incoming.take_completed()
    second.count()
    first.open(2, 33)
    exchange(first, second, 3)
    sent, received = second.count()
    assert (sent[2], received[2]) == (3, 3)
    assert second.incoming.take_completed().sequence.tolist() == [0, 1]
    assert first.outgoing.take_completed().sequence.tolist() == [0, 1, 2]


def test_many_peers_are_met_at_once():
    """As by a node that starts: in one batch a peer that is known, one that starts anew, of whose former life a probe came late, and one that is new."""
    first, second = Sessions(ROWS), Sessions(ROWS)
    for row in (0, 1):
        first.open(row, 10 + row, 100)
    hear(second, np.array([0, 1]), compose(first, np.array([0, 1])), np.array([1, 1]))
    late = compose(first, np.array([1]))
    first.open(1, 33, 200)
    first.open(3, 44, 300)
    compose(first, np.array([3]))  # the very first is lost
    rows = np.array([3, 1, 0, 3])
    probes = compose(first, rows, np.array([0, 0, 0, 1]))
    batch = np.concatenate([late, probes])
    second.count()
    hear(second, np.concatenate([[1], rows]), batch, np.arange(10, 15))
    sent, received = second.count()
    assert sent.tolist() == received.tolist() == [1, 1, 0, 2]
    assert second.heard_sequence.tolist() == [101, 200, 0, 302]
    assert compose(second, np.arange(ROWS))["peer_session"].tolist() == [10, 33, 0, 44]


def test_echoes_of_a_former_life_are_ignored():
    """Echoes made out to another session stamp nothing of ours."""
    first, second = ends()
    probes = compose(first)
    hear(second, ROW, probes, np.array([5]))
    answer = compose(second)
    first.open(2, 33)
    first.left(compose(first), np.array([3]))
    hear(first, ROW, answer, np.array([6]))
    assert not len(first.outgoing.take_completed().row)


def test_stamps_of_an_ended_stream_are_ignored():
    """A packet that the kernel hands back after its row changed hands stamps nothing."""
    first, _ = ends()
    probes = compose(first)
    first.close(2)
    first.open(2, 44)
    mine = compose(first)
    first.left(probes, np.array([99]))
    assert first.outgoing.recall(first.outgoing.transmit_ns, ROW, mine["sequence"]).tolist() == [0]


def test_probes_that_never_left_are_counted_when_a_later_one_has():
    """Until then they may still wait; each counts once, and none of an earlier life."""
    first, _ = ends()
    probes = [compose(first) for _ in range(8)]
    unsent = []
    for left in ((0,), (1, 3, 3), (), (3, 6), (7,)):
        for number in left:
            first.left(probes[number], np.array([5]))
        unsent.append(int(first.count_unsent()[2]))
    assert unsent == [0, 1, 0, 2, 0]

    compose(first)
    first.open(2, 44, 1_000)
    compose(first)
    first.left(compose(first), np.array([6]))
    assert first.count_unsent().tolist() == [0, 0, 1, *[0] * (ROWS - 3)]
    assert not first.count_unsent().any()


@pytest.mark.parametrize("row", [ROWS, 1 << 31])
def test_a_foreign_row_in_a_packet_handed_back_is_ignored(row):
    """The row inside a packet is not trusted."""
    first, _ = ends()
    probes = compose(first)
    probes["row"] = row
    first.left(probes, np.array([99]))
    assert first.outgoing.recall(first.outgoing.transmit_ns, ROW, np.array([0])).tolist() == [0]


def test_a_coded_pair_has_consecutive_numbers():
    """A row that stands twice sends two probes; the next round goes on behind them."""
    first, _ = ends()
    pair = compose(first, np.array([2, 2]), np.array([False, True]))
    assert pair["sequence"].tolist() == [0, 1]
    assert compose(first)["sequence"].tolist() == [2]


def padded(end, number=0, *, full=True):
    """The next probe of an end whose device carries 1,450 bytes."""
    end.set_sizes(np.full(ROWS, 1_450))
    end.announce(np.int64(50_000), np.True_, np.int64(KERNEL), np.int64(40))
    return end.compose(ROW, np.array([number]), np.array([full]))


def meet():
    """Two ends that know how large a packet the other one takes."""
    first, second = ends()
    for end, other in ((first, second), (second, first), (first, second)):
        hear(other, ROW, padded(end, full=False), np.array([5]))
    second.count_full()
    return first, second


def test_full_size_is_what_both_ends_carry():
    """Known when both have spoken; a peer that says nothing gets none."""
    first, second = ends()
    hear(second, ROW, padded(first, full=False), np.array([5]))
    assert first.full_bytes[2] == 0
    second.set_sizes(np.full(ROWS, 9_000))
    assert second.full_bytes[2] == 1_450
    assert first.full_bytes[2] == 0
    second.set_sizes(np.zeros(ROWS, np.int64))
    hear(first, ROW, compose(second), np.array([6]))
    assert first.full_bytes[2] == 0
    second.open(2, 23)
    hear(second, ROW, padded(first, full=False), np.array([7]))
    padded(second)
    assert second.full_bytes[2] == 1_450


def test_lost_full_size_probes_are_known_by_the_next_one():
    """Counted round and round, also beyond what the count holds."""
    first, second = meet()
    for _ in range(5):
        for _ in range(FULL_COUNTS // 3):
            padded(first)
        hear(second, ROW, padded(first, full=False), np.array([5]))
        sent, received = second.count_full()
        assert (sent[2], received[2]) == (FULL_COUNTS // 3, 0)
    hear(second, ROW, padded(first), np.array([5]), np.array([True]))
    assert [int(each[2]) for each in second.count_full()] == [1, 1]
    assert [int(each[2]) for each in second.count_full()] == [0, 0]


def test_a_late_probe_does_not_turn_the_count_back():
    """A probe that was overtaken says an earlier count."""
    first, second = meet()
    late, early = padded(first), padded(first)
    hear(second, ROW, early, np.array([5]), np.array([True]))
    assert [int(each[2]) for each in second.count_full()] == [2, 1]
    hear(second, ROW, late, np.array([6]), np.array([True]))
    assert [int(each[2]) for each in second.count_full()] == [1, 1]  # came after it was told to be lost


@pytest.mark.parametrize("outage", [FULL_COUNTS // 2 + 1, FULL_COUNTS * 3 // 4, FULL_COUNTS - 10])
def test_after_an_outage_the_next_lost_padded_probes_are_counted(outage):
    """However many an outage lost.

    A link that passes only small packets from then on is not overlooked until the count has gone round.
    """
    first, second = meet()
    for _ in range(outage):
        padded(first)
    hear(second, ROW, padded(first, full=False), np.array([5]))
    assert [int(each[2]) for each in second.count_full()] == [outage, 0]
    padded(first)
    hear(second, ROW, padded(first, full=False), np.array([6]))
    assert [int(each[2]) for each in second.count_full()] == [1, 0]


def test_a_padded_probe_may_follow_a_coded_pair():
    """Their numbers are consecutive; only the last is padded, and only the others are for clocks."""
    first, second = meet()
    first.announce(np.int64(50_000), np.True_, np.int64(KERNEL), np.int64(40))
    three = np.array([2, 2, 2])
    probes = first.compose(three, np.arange(3), np.array([False, False, True]))
    assert np.diff(probes["sequence"]).tolist() == [1, 1]
    first.left(probes, stamp(probes, 10))
    hear(second, three, probes, stamp(probes, 50), np.array([False, False, True]))
    more = padded(first, full=False)
    hear(second, ROW, more, stamp(more, 50))
    assert second.incoming.take_completed().sequence.tolist()[-2:] == probes["sequence"].tolist()[:2]
    assert [int(each[2]) for each in second.count_full()] == [1, 1]
    assert padded(first, full=False)["sequence"][0] == more["sequence"][0] + 1


def test_growing_keeps_everything():
    """Streams do not notice that the table was made larger between two rounds."""
    first, second = ends()
    exchange(first, second, 5)
    first.grow(2 * ROWS)
    assert len(first) == 2 * ROWS
    exchange(first, second, 5)
    assert first.outgoing.take_completed().sequence.tolist() == list(range(10))


def test_random_loss_and_order_never_pair_wrong_stamps():
    """Whatever is lost, repeated or swapped, a completed probe has the two stamps that were taken of it."""
    random = np.random.default_rng(5)
    first, second = ends()
    waiting: list[tuple[Sessions, np.ndarray, int]] = []
    for _ in range(400):
        for end, other, base_ns in ((first, second, 1 << 40), (second, first, 1 << 50)):
            probes = compose(end)
            end.left(probes, stamp(probes, base_ns))
            if random.random() > 0.3:
                waiting.append((other, probes, base_ns + 7))
        random.shuffle(waiting)
        while waiting and random.random() < 0.7:
            other, probes, base_ns = waiting[0] if random.random() < 0.1 else waiting.pop()
            hear(other, ROW, probes, stamp(probes, base_ns))
        for ring in (first.outgoing, first.incoming, second.outgoing, second.incoming):
            done = ring.take_completed()
            assert (done.receive_ns - done.transmit_ns == 7).all()
            assert ((done.transmit_ns & ((1 << 40) - 1)) == done.sequence * 1_000_000).all()
