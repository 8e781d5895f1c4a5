"""The steps of a job as a whole: ranks that change hands, steps that are done twice, and what the time was worth."""

import hashlib
import json
import struct

import numpy as np
import pytest

from foliot_lab.workload.train.merged_steps import LINE, merge, read_lines

S = 1_000_000_000


def lines(*rows):
    """A process's record: rank, step, beginning and end in seconds, and loss; no end: it did not end the step."""
    told = [(rank, step, round(began * S), round((ended or 0) * S), loss) for rank, step, began, ended, loss in rows]
    return np.array(told, dtype=LINE)


def steady(rank, first, count, at_s, loss=1.0):
    """Steps of a second, one after the other, each told when its loss is known and when it ends."""
    return [
        (rank, first + number, at_s + number, ended, loss)
        for number in range(count)
        for ended in (None, at_s + number + 1)
    ]


def test_a_rank_goes_from_one_process_to_another():
    """The job's steps are those of its ranks, and it is known who had a rank when."""
    whole = merge(
        {
            "node0": lines(*steady(0, 0, 3, 0), *steady(0, 3, 3, 8)),
            "node1": lines(*steady(1, 0, 3, 0, loss=3.0)),
            "node2": lines(*steady(1, 3, 3, 8, loss=5.0)),
        },
        size=2,
    )
    assert whole.losses.tolist() == [2.0, 2.0, 2.0, 3.0, 3.0, 3.0]
    assert [whole.holder(1, round(at_s * S)) for at_s in (-1, 2.5, 7.9, 8)] == [None, "node1", "node1", "node2"]
    assert len(whole.again_ns) == 0
    # The step that ended at second 9 came six seconds after the one before.
    assert whole.stall_ms(3 * S, 10 * S) == 5000.0
    assert whole.stall_ms(0, 2 * S) == 0.0
    assert whole.goodput(0, 11 * S) == pytest.approx(6 / 11, abs=1e-4)


def test_a_step_that_is_done_twice_counts_once():
    """By its last time: its loss, and its share of the time."""
    whole = merge(
        {
            "node0": lines(*steady(0, 0, 4, 0), *steady(0, 2, 3, 10, loss=2.0)),
            "node1": lines(*steady(1, 0, 4, 0), *steady(1, 2, 3, 10, loss=4.0)),
        },
        size=2,
    )
    assert whole.losses.tolist() == [1.0, 1.0, 3.0, 3.0, 3.0]
    assert whole.again_ns.tolist() == [11 * S, 12 * S]
    assert (whole.done_again(5 * S, 20 * S), whole.done_again(0, 11 * S)) == (2, 1)
    assert whole.goodput(0, 13 * S) == pytest.approx(5 / 13, abs=1e-4)


def test_a_step_counts_that_one_rank_has_ended():
    """Its gradients are of all ranks, so each had its loss. A step that nobody ended does not count."""
    half = {"node0": lines(*steady(0, 0, 2, 0)), "node1": lines(*steady(1, 0, 1, 0), (1, 1, 1.0, None, 3.0))}
    assert merge(half, size=2).losses.tolist() == [1.0, 2.0]
    none = {"node0": lines(*steady(0, 0, 1, 0), (0, 1, 1.0, None, 1.0)), "node1": lines(*steady(1, 0, 1, 0))}
    assert merge(none, size=2).losses.tolist() == [1.0]
    assert merge({"node0": lines(), "node1": lines()}, size=2).loss_sha256(None) is None


def test_runs_are_compared_by_all_their_losses():
    """As little-endian float64, up to the steps that were asked for."""
    whole = merge({"node0": lines(*steady(0, 0, 3, 0, loss=0.1))}, size=1)
    assert whole.loss_sha256(None) == hashlib.sha256(struct.pack("<3d", 0.1, 0.1, 0.1)).hexdigest()
    assert whole.loss_sha256(2) == hashlib.sha256(struct.pack("<2d", 0.1, 0.1)).hexdigest()


def test_a_record_is_read_up_to_where_its_process_was_killed(tmp_path):
    """A line of a loss alone has no end; times become lab time."""
    file = tmp_path / "node0.jsonl"
    told = {"rank": 3, "step": 5, "began_ns": 7, "loss": 0.1}
    file.write_text(f"{json.dumps(told)}\n{json.dumps(told | {'ended_ns': 9, 'comm_ns': 1})}\n" + '{"step": 6, "be')
    assert read_lines(file, 100).tolist() == [(3, 5, 107, 0, 0.1), (3, 5, 107, 109, 0.1)]
    assert len(read_lines(tmp_path / "none", 100)) == 0
