"""``foliot.torch`` in a real PyTorch job over Gloo: what is told of it, and who is named."""

from __future__ import annotations

import asyncio
import importlib.util

import pytest
from recorded_job import IS_COUNTED, WORLD, collectives, recorded_job, until

from foliot_schemas.collective import ranks_of, runs

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="make train installs PyTorch")


async def test_all_that_a_job_does_is_told(tmp_path):
    """By its program and by DDP, in all groups, with transfers; until it says that it is over."""
    async with recorded_job(tmp_path) as (batches, events, ranks):
        await until(lambda: any(each[1] in {"1", "2"} and each[3] > 50 for each in collectives(batches)))
        (tmp_path / "over").touch()
        await until(lambda: all(rank.returncode is not None for rank in ranks))
        await until(lambda: batches[-1].ranks and {each.process for each in batches[-1].ranks} == {"ended"})

        assert [rank.returncode for rank in ranks] == [0] * WORLD, (tmp_path / "0.log").read_text()
        told = collectives(batches)
        groups = {
            group.name: (group.description, [*ranks_of(group.members)]) for batch in batches for group in batch.members
        }
        assert groups == {"0": ("default_pg", [0, 1, 2, 3]), "1": ("left", [0, 1]), "2": ("right", [2, 3])}
        # Two all-reduces of all ranks a step: DDP's of 64 x 64 weights and 64 biases, and the program's.
        sizes = {bytes_ for _, group, operation, _, _, bytes_ in told if (group, operation) == ("0", "all_reduce")}
        assert sizes == {4 * (64 * 64 + 64), 1}
        assert {each[0] for each in told if each[1] == "1"} == {0, 1}
        assert {(each[0], each[2], each[4]) for each in told if each[4] >= 0} == {(0, "send", 1), (1, "recv", 0)}
        for rank in range(WORLD):
            numbers = sorted(each[3] for each in told if each[0] == rank and each[1] == "0" and each[4] < 0)
            assert numbers == [*range(1, len(numbers) + 1)]
        assert all(each.data_ns > 0 and each.dropped == 0 for each in batches[-1].ranks)
        assert all((each.cpu_delay_ns > 0) is IS_COUNTED for each in batches[-1].ranks)
        assert [event for event in events if event.kind == "hang"] == []


@pytest.mark.parametrize(("fault", "rank", "state"), [("hang", 2, "absent"), ("mismatch", 1, "mismatch")])
async def test_the_rank_that_holds_up_a_real_job_is_named(tmp_path, fault, rank, state):
    """One that sleeps, and one that begins a barrier in place of an all-reduce."""
    async with recorded_job(tmp_path, fault) as (_, events, _):
        await until(lambda: any(event.kind == "hang" for event in events))
        await asyncio.sleep(1.0)

        assert {(event.who, event.state) for event in events if event.kind == "hang"} == {(f"real/rank{rank}", state)}


@pytest.mark.parametrize("ranks", [(), (3,), (0, 1, 2, 3), (1, 9, 17, 25), (0, 1, 2, 8, 9, 10), (5, 4, 3), (0, 2, 3)])
def test_a_job_and_the_contract_write_the_ranks_of_a_group_alike(ranks):
    """A job's own process imports PyTorch and the standard library alone, and has its own."""
    from foliot.torch.reporter import _runs  # noqa: PLC0415 - PyTorch may not be there

    assert tuple(map(tuple, _runs(ranks))) == runs(ranks)
    assert tuple(ranks_of(runs(ranks))) == ranks
