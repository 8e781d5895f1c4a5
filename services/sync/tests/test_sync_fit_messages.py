"""What a shard tells the leader, and how the leader puts it together."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from foliot_schemas import decode, encode
from foliot_schemas.clock import ClockState
from foliot_schemas.fit import FitBatch, FitRow, HeardNode
from foliot_sync.core.clock_numbers import ClockNumbers
from foliot_sync.core.fit import fit_messages
from foliot_sync.core.fit.shard_fit import Fits, ShardFit, merged_pairs
from foliot_sync.core.solve.window_assembly import WindowAssembly
from foliot_sync.core.synchroniser import Synchroniser
from foliot_sync.settings import SyncSettings

SECOND = 1_000_000_000


@pytest.fixture
def fits(start):
    """Of a small fleet's first window."""
    fleet, fitter = start(seed=1, nodes=6, streams=2, load=0.2).fleet, ShardFit(SyncSettings())
    for node in range(5):
        fitter.add(fleet.batch(node, 0), node)
    return fitter.close(SECOND)


def named(pairs, names):
    """Pairs by the names of their clocks."""
    columns = [column.tolist() for column in pairs]
    rows = [dict(zip(pairs._fields, row, strict=True)) for row in zip(*columns, strict=True)]
    return {(names[row.pop("initiator")], names[row.pop("responder")]): row for row in rows}


def told(fits):
    """As the leader reads what a shard has said of them."""
    return [fit_messages.read(decode(encode(batch), FitBatch), 7) for batch in fit_messages.batches(fits, "sync", 3, 5)]


@pytest.mark.parametrize("rows", [4, 2_048])
def test_nothing_is_lost_on_the_way(fits, rows, monkeypatch):
    """However many messages it takes: every pair to the last bit, and every node's word with the time that it took."""
    monkeypatch.setattr(fit_messages, "_ROWS", rows)
    parts, numbers = told(fits), ClockNumbers()
    assert len(parts) == -(-len(fits.pairs.at_ns) // rows) or len(parts) == -(-len(fits.heard) // rows)
    assert named(merged_pairs(parts, numbers), list(numbers)) == named(fits.pairs, fits.clocks)
    assert [node for part in parts for node in part.heard] == [
        msgspec.structs.replace(node, since_ns=node.since_ns + 7) for node in fits.heard
    ]


def test_a_window_without_pairs_is_told_too(fits):
    """So that nobody waits for it."""
    for empty in (Fits((), None, ()), fits._replace(pairs=None)):
        (part,) = told(empty)
        assert part.pairs is None
        assert len(part.heard) == len(empty.heard)


def test_a_pair_that_makes_no_sense_is_left_out_and_the_others_are_told(fits):
    """The leader would refuse the whole message."""
    variance = fits.pairs.variance.copy()
    variance[3] = np.nan
    (part,) = told(fits._replace(pairs=fits.pairs._replace(variance=variance)))
    assert len(part.pairs.at_ns) == len(fits.pairs.at_ns) - 1


@pytest.mark.parametrize("slope_ppb", [9_000_000.0, -9_000_000.0])
def test_what_no_clock_can_do_is_never_believed(slope_ppb):
    """Each of two pairs may run at almost 1 %, and the far end of both then at almost 2.

    No message could say so, and it is no clock.
    """
    sync = Synchroniser(SyncSettings())
    for window in range(1, 8):
        rows = np.zeros(2, FitRow)
        rows["initiator"], rows["responder"], rows["variance"], rows["slope_variance"] = [0, 1], [1, 2], 100.0, 1.0
        rows["at_ns"] = window * 2 * SECOND
        rows["slope_ppb"], rows["offset_ns"] = slope_ppb, slope_ppb * window * 2
        rows["lower_ns"], rows["upper_ns"] = rows["offset_ns"] - 1_000, rows["offset_ns"] + 1_000
        chain = ("node0", "node1", "node2")
        ends = tuple(HeardNode(node=name, until_ns=window * 2 * SECOND, since_ns=0, epoch_ns=1) for name in chain)
        told = FitBatch.of(rows, shard="sync", term=1, window=window, part=0, parts=1, clocks=chain, heard=ends)
        states = {state.clock: state for state in sync.weigh([fit_messages.read(told, 0)], window * 2 * SECOND)}
        for state in states.values():
            decode(encode(state), ClockState)
        assert states["node2"].status == "unsynchronised"
    assert states["node1"].drift_ppb == pytest.approx(-slope_ppb, rel=0.1)


# -- put together
# ---------------------------------------------------------------------------------------------------------


def batch(shard, term=1, window=1, part=0, parts=1):
    """A word of a shard; it hears one node, which tells parts from each other."""
    node = HeardNode(node=f"{shard}/{term}/{window}/{part}", until_ns=1, since_ns=0, epoch_ns=0)
    (made,) = fit_messages.batches(Fits((), None, (node,)), shard, term, window)
    return msgspec.structs.replace(made, part=part, parts=parts)


def heard(taken):
    """Whom the fits that were taken name."""
    return sorted(node.node for part in taken for node in part.heard)


@pytest.fixture
def collection():
    """Of two shards."""
    return WindowAssembly(["a", "b"])


def test_all_shards_are_waited_for_at_first_and_then_those_that_spoke(collection):
    """One that is silent costs one window; when it is back, it is waited for again."""
    collection.add(batch("a"), 0)
    assert collection.begun
    assert not collection.complete
    assert heard(collection.take(0)) == ["a/1/1/0"]
    collection.add(batch("a", window=2), 0)
    assert collection.complete
    collection.add(batch("b", window=9), 0)
    assert heard(collection.take(0)) == ["a/1/2/0", "b/1/9/0"]
    collection.add(batch("a", window=3), 0)
    assert not collection.complete


def test_a_window_counts_when_all_its_parts_are_there(collection):
    """In whatever order, and each once."""
    collection.add(batch("a", part=1, parts=2), 0)
    assert not collection.begun
    assert collection.take(0) == []
    collection.add(batch("a", part=1, parts=2), 0)
    collection.add(batch("a", part=0, parts=2), 0)
    assert heard(collection.take(0)) == ["a/1/1/0", "a/1/1/1"]
    collection.add(batch("a", part=0, parts=2), 0)
    assert not collection.begun
    assert collection.rejected.total() == 1


def test_of_two_windows_the_later_counts(collection):
    """One that was not taken in time is a window old when the next one comes: what it says is known better by then."""
    for window in (4, 5, 4):
        collection.add(batch("a", window=window), 0)
    assert heard(collection.take(0)) == ["a/1/5/0"]
    assert collection.rejected.total() == 1


def test_of_two_holders_the_later_one_counts(collection):
    """Whoever lost the lease may not know it yet; the windows of the new one begin at 1 again."""
    collection.add(batch("a", term=7, window=1), 0)
    collection.add(batch("a", term=3, window=800), 0)
    assert heard(collection.take(0)) == ["a/7/1/0"]
    collection.add(batch("a", term=3, window=801), 0)
    assert not collection.begun


def test_a_holder_that_alone_goes_on_speaking_is_heard_again(collection):
    """Leases that are counted anew begin at 1; whoever holds one is not refused for ever."""
    collection.add(batch("a", term=7), 0)
    assert heard(collection.take(0)) == ["a/7/1/0"]
    for window in range(1, 6):
        collection.add(batch("a", term=2, window=window), 0)
    assert heard(collection.take(0)) == ["a/2/5/0"]


def test_a_shard_that_there_is_not_is_left_out(collection):
    """Its nodes are another's now, since the fleet was cut anew."""
    collection.add(batch("c"), 0)
    assert not collection.begun
    assert collection.rejected.total() == 1


def test_the_time_on_the_way_is_added(collection):
    """So that a node's word is as old as it is."""
    collection.add(batch("a"), 100)
    assert collection.take(350)[0].heard[0].since_ns == 250
