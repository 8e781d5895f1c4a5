"""What dumps leave unsaid: batches whose parts are never retired, groups without a status, entries that the ring lost."""

from __future__ import annotations

import pickle
from collections import defaultdict

from foliot.analysis.flight_recorder import read
from foliot.analysis.hang import judge

FLOAT = ["Float"]


class Job:
    """Dumps entry by entry. A group's local number is its place among those of a rank."""

    def __init__(self, **groups):
        self.groups = {name.strip("_"): tuple(members) for name, members in groups.items()}
        self.entries, self.statuses = defaultdict(list), defaultdict(dict)

    def begin(self, rank, group, number, name, *, done=False, **more):
        """A rank begins an operation."""
        own = self.entries[rank]
        own.append(
            {
                "record_id": len(own), "pg_id": self._local(rank, group), "process_group": (group, ""),
                "collective_seq_id": number, "profiling_name": f"nccl:{name}", "retired": done,
                "input_sizes": [[8]], "output_sizes": [[8]], "input_dtypes": FLOAT, "output_dtypes": FLOAT, **more,
            }
        )  # fmt: skip

    def batch(self, rank, group, number, transfers, *, done):
        """Transfers as one, of which the last entry alone is ever retired."""
        for each in transfers:
            self.begin(rank, group, 0, each, is_p2p=True, p2p_seq_id=number)
        self.begin(rank, group, 0, "coalesced", done=done, is_p2p=True, p2p_seq_id=number)

    def status(self, rank, group, begun, done):
        """How far a rank is."""
        self.statuses[rank][self._local(rank, group)] = {
            "last_enqueued_collective": begun, "last_completed_collective": done,
        }  # fmt: skip

    def verdict(self, folder, *, without=(), active=False):
        """What is found of it, with reasons by rank."""
        ranks = sorted({rank for members in self.groups.values() for rank in members})
        for rank in ranks:
            entries = [each for each in self.entries[rank] if not (active and each["retired"])]
            own = {name: members for name, members in self.groups.items() if rank in members}
            config = {name: {"name": name, "desc": "", "ranks": str(list(members))} for name, members in own.items()}
            dump = {"pg_config": config, "pg_status": self.statuses[rank], "entries": entries}
            if rank not in without:
                (folder / f"trace_{rank}").write_bytes(pickle.dumps(dump))
        found = read(folder.iterdir())
        assert found.broken == ()
        verdict = judge(found.records, found.expected)
        return {each.rank: each.why for each in verdict.blamed}, verdict.is_certain

    def _local(self, rank, group):
        return [name for name, members in self.groups.items() if rank in members].index(group)


def pipeline(culprit):
    """Four stages that passed a batch on, of which one does not begin the reduction after it."""
    job = Job(_0=range(4), _1=range(4))
    for rank in range(4):
        before = [f"recv {rank}<-{rank - 1}"] if rank else []
        job.batch(rank, "0", 1, [*before, *([f"send {rank}->{rank + 1}"] if rank < 3 else [])], done=True)
        if rank != culprit:
            job.begin(rank, "1", 2, "all_reduce")
        job.status(rank, "0", 0, 0)
        job.status(rank, "1", 1 if rank == culprit else 2, 1)
    return job


def test_a_batch_that_is_done_holds_nobody_up(tmp_path):
    """Though its transfers look as if they were not."""
    assert pipeline(2).verdict(tmp_path) == ({2: "absent"}, True)


def test_a_lost_dump_is_not_waited_for_in_a_batch_that_is_done(tmp_path):
    """It is not dead."""
    assert pipeline(3).verdict(tmp_path, without=[1]) == ({3: "absent"}, False)


def test_idle_ranks_beside_a_batch_that_hangs_are_not_absent(tmp_path):
    """A batch has no number that others would have to come to."""
    job = Job(_0=range(4))
    job.batch(1, "0", 9, ["send 1->2"], done=False)
    job.batch(2, "0", 9, ["recv 2<-1"], done=False)

    assert job.verdict(tmp_path) == ({}, False)


def test_the_idle_end_of_a_transfer_may_have_done_its_part(tmp_path):
    """A sender is through before its receiver is."""
    job = Job(_0=range(2))
    job.begin(0, "0", 0, "send 0->1", done=True, is_p2p=True, p2p_seq_id=1)
    job.begin(1, "0", 0, "recv 1<-0", is_p2p=True, p2p_seq_id=1)

    assert job.verdict(tmp_path) == ({}, False)


def test_a_rank_whose_status_has_no_name_is_not_absent(tmp_path):
    """It says nothing of the group: its entries are gone, and its group's name is no number."""
    job = Job(ab_0=range(4))
    for rank in range(4):
        job.begin(rank, "ab_0", 100, "all_reduce", done=rank != 3)
        job.status(rank, "ab_0", 100, 99 if rank == 3 else 100)

    assert job.verdict(tmp_path, active=True) == ({}, False)


def test_parts_of_a_collective_that_is_done_long_ago_are_no_sign(tmp_path):
    """A busier rank's ring has lost them; the later ones of the group are done."""
    job = Job(_0=range(4))
    for rank in range(4):
        if rank < 2:
            job.begin(rank, "0", 0, "send 0->1" if rank == 0 else "recv 1<-0", done=True, is_p2p=True, p2p_seq_id=1)
        if rank == 3:
            for number in (1, 1, 2, 2):
                job.begin(rank, "0", number, "_all_gather_base")
        job.begin(rank, "0", 8, "all_reduce", done=True)
        if rank != 1:
            job.begin(rank, "0", 9, "all_reduce")
        job.status(rank, "0", 8 if rank == 1 else 9, 8)

    assert job.verdict(tmp_path) == ({1: "absent"}, True)


def test_the_root_of_a_gather_is_no_mismatch(tmp_path):
    """It has a list of tensors, where the others have none."""
    job = Job(_0=range(4))
    for rank in range(3):
        root = {"output_sizes": [[8]] * 4, "output_dtypes": FLOAT * 4} if rank == 0 else {"output_dtypes": []}
        job.begin(rank, "0", 10, "gather", **root)
    for rank in range(4):
        job.status(rank, "0", 9 if rank == 3 else 10, 9)

    assert job.verdict(tmp_path) == ({3: "absent"}, True)


def test_shapes_of_as_many_numbers_are_no_mismatch(tmp_path):
    """A number alone may have no dimension, or one."""
    job = Job(_0=range(4))
    for rank in range(4):
        job.begin(rank, "0", 2, "all_reduce", input_sizes=[[]] if rank == 1 else [[1]], output_sizes=[[1]])
        job.status(rank, "0", 2, 1)

    assert job.verdict(tmp_path) == ({}, False)


def test_an_all_to_all_that_ended_for_some_proves_nothing_of_others(tmp_path):
    """Its parts may be empty."""
    job = Job(_0=range(4), _1=(2, 3))
    for rank in (0, 1):
        for number in (10, 11):
            job.begin(rank, "0", number, "all_to_all", done=True)
        job.begin(rank, "0", 12, "all_reduce")
        job.status(rank, "0", 12, 11)
    job.begin(2, "1", 5, "all_reduce")
    for number, name in ((10, "all_to_all"), (11, "all_to_all"), (12, "all_reduce")):
        job.begin(2, "0", number, name)
    for rank, begun in ((2, (12, 5)), (3, (9, 4))):
        job.status(rank, "0", begun[0], 9)
        job.status(rank, "1", begun[1], 4)

    assert job.verdict(tmp_path) == ({3: "absent"}, True)
