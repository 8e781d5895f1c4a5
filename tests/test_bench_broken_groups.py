"""The study of transfers that Gloo forgets: what its rows come to, and that groups are broken in every manner."""

from __future__ import annotations

import importlib.util

import pytest

from bench.studies.broken_groups.__main__ import Row, _run, sums
from bench.studies.broken_groups.manners import MANNERS, RANKS


def row(group, manner, rank, *, forgotten=0, left_ms=10.0):
    """Of one rank and group."""
    return Row(
        group=group, manner=manner, rank=rank, busy=True, forgotten=forgotten, ended_by_future=forgotten > 1,
        left_ms=left_ms,
    )  # fmt: skip


def test_a_group_in_which_two_ranks_forget_something_is_one():
    """Groups are counted, and times are those of ranks."""
    rows = [
        row(0, "at-once", 0, forgotten=1), row(0, "at-once", 1, forgotten=2, left_ms=1_300.0), row(3, "at-once", 0),
        row(1, "reading-first", 0, left_ms=30.0),
    ]  # fmt: skip
    at_once, reading_first = sums(rows)
    assert (at_once.groups, at_once.forgotten, at_once.ended_by_future) == (2, 1, 1)
    assert (at_once.left_p50_ms, at_once.left_max_ms) == (10.0, 1_300.0)
    assert (reading_first.manner, reading_first.groups, reading_first.forgotten) == ("reading-first", 1, 0)


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="make train installs PyTorch")
def test_real_groups_are_broken_in_each_manner_and_left():
    """By real ranks of DDP. Every one but the lost one goes on to the next group."""
    rows = _run(0, len(MANNERS))
    assert sorted((each.group, each.rank) for each in rows) == [
        (group, rank) for group in range(len(MANNERS)) for rank in range(RANKS - 1)
    ]
    assert {each.manner for each in rows} == {*MANNERS}
