"""Dumps of the Flight Recorder: what is read of them, and what becomes of bytes that are none."""

from __future__ import annotations

import json
import os
import pickle
import random
import struct

import pytest

from draws import draws
from foliot.analysis import dump_format
from foliot.analysis.flight_recorder import rank_of, read
from foliot.analysis.hang import judge
from hung_job import HungJob


def written(folder, job, form="pickle", without=()):
    """A job's dumps, a file a rank."""
    for rank in range(job.world):
        if rank not in without:
            dump = job.dump(rank)
            data = pickle.dumps(dump, protocol=2) if form == "pickle" else in_json(dump)
            (folder / f"trace_{rank}").write_bytes(data)
    return sorted(folder.iterdir())


def in_json(dump):
    """As PyTorch writes it: statuses are strings, times 0, and there are no frames."""
    status = {key: {name: str(value) for name, value in each.items()} for key, each in dump["pg_status"].items()}
    entries = [
        {name: 0 if value is None else value for name, value in each.items() if name != "frames"}
        for each in dump["entries"]
    ]
    return json.dumps({**dump, "pg_status": status, "entries": entries}).encode()


@pytest.mark.parametrize("form", ["pickle", "json"])
@pytest.mark.parametrize("seed", draws(10))
def test_dumps_say_what_ranks_know(tmp_path, seed, form):
    """The verdict is that on the ranks themselves, in either form. Groups with transfers have other statuses."""
    job = HungJob(seed, stopped={seed % 8: 15}, differing={(seed + 3) % 8: 17})

    found = read(written(tmp_path, job, form))

    assert (found.expected, found.broken) == (8, ())
    assert judge(found.records, 8) == judge(job.records(), 8)
    for rank, record in found.records.items():
        assert record.operations == job.record(rank).operations
        assert record.groups == job.record(rank).groups


@pytest.mark.parametrize("seed", draws(5))
def test_the_order_of_entries_and_the_names_of_files_do_not_matter(tmp_path, seed):
    """Entries are sorted by their numbers, and a dump's groups say whose it is."""
    job, rng = HungJob(seed, stopped={2: 15}), random.Random(seed)
    names = rng.sample(range(8), 8)
    for rank in range(8):
        dump = job.dump(rank)
        rng.shuffle(dump["entries"])
        (tmp_path / f"trace_{names[rank]}.pickle").write_bytes(pickle.dumps(dump))

    found = read(tmp_path.iterdir())

    assert judge(found.records, 8) == judge(job.records(), 8)


@pytest.mark.parametrize("form", ["pickle", "json"])
def test_a_file_that_was_cut_anywhere_takes_no_other_with_it(tmp_path, form):
    """It is broken, with a reason; the others are judged."""
    job = HungJob(1, stopped={2: 15})
    files = written(tmp_path, job, form)
    whole = files[5].read_bytes()

    for length in range(0, len(whole) - 1, 97):
        files[5].write_bytes(whole[:length])
        found = read(files)

        assert [name for name, _ in found.broken] == [files[5].name]
        assert all(reason for _, reason in found.broken)
        assert {each.rank for each in judge(found.records, found.expected).blamed} <= {2}


@pytest.mark.parametrize("seed", draws(300))
def test_changed_bytes_end_in_a_record_or_a_reason(tmp_path, seed):
    """Never in another exception, and never in much memory."""
    rng = random.Random(seed)
    files = written(tmp_path, HungJob(1, stopped={2: 15}), rng.choice(["pickle", "json"]), without=range(1, 8))
    data = bytearray(files[0].read_bytes())
    for _ in range(rng.choice([1, 1, 3, 20])):
        data[rng.randrange(len(data))] = rng.randrange(256)
    files[0].write_bytes(bytes(data))

    found = read(files)

    assert len(found.records) + len(found.broken) == 1
    judge(found.records, found.expected)


class _Code:
    def __reduce__(self):
        return os.mkdir, ("ran",)


DEEP = b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b"."
RANKS = str([*range(999)])
HOSTILE = {
    "code": pickle.dumps({"entries": [_Code()]}),
    "deep lists": DEEP,
    "deep JSON": b'{"entries":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "a list": pickle.dumps([1, 2]),
    "entries that are none": pickle.dumps({"entries": 7}),
    "an entry without a name": pickle.dumps({"entries": [{"record_id": 1}]}),
    "a size that is a text": pickle.dumps({"entries": [{"profiling_name": "a", "input_sizes": ["x"]}]}),
    "a number of 400 digits": b'{"entries":[{"profiling_name":"a","record_id":' + b"9" * 400 + b"}]}",
    "a rank without end": pickle.dumps(
        {"entries": [], "pg_config": {"0": {"name": "0", "desc": "", "ranks": "[0, 99999999999999]"}}}
    ),
    "ranks that are none": pickle.dumps({"entries": [], "pg_config": {"0": {"name": "0", "desc": "", "ranks": "all"}}}),
    "a length without end": b"\x80\x04\x8e" + struct.pack("<Q", 1 << 62) + b"x",
    "a name without end": pickle.dumps({"entries": [{"profiling_name": "nccl:" + "a" * 5_000}]}),
    "a group's name that is a number without end": pickle.dumps(
        {"entries": [], "pg_status": {1: {}}, "pg_config": {"9" * 5_000: {"name": "", "desc": "", "ranks": "[]"}}}
    ),
    "a group's name that is no text": b'{"entries":[{"profiling_name":"a","process_group":["\\u001b[2J",""]}]}',
    "one text of ranks for many groups": pickle.dumps(
        {"entries": [], "pg_config": {str(number): {"ranks": RANKS} for number in range(99)}}
    ),
    "one entry many times": pickle.dumps({"entries": [{"profiling_name": "a"}] * 9_999}),
    "nothing": b"",
    "a text": b"Fault ranks: [9, 14]\n",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_have_a_reason(tmp_path, monkeypatch, name):
    """No code runs."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "trace_0"
    file.write_bytes(HOSTILE[name])

    found = read([file])

    assert found.records == {}
    assert found.broken[0][0] == "trace_0"
    assert 5 < len(found.broken[0][1]) < 400
    assert not (tmp_path / "ran").exists()


def test_a_pickle_that_names_one_list_a_million_times_is_refused(tmp_path):
    """It would be copied as often: a hundred kilobytes that ask for ten gigabytes."""
    sizes = [[1] * 1_000] * 1_000
    entry = {"profiling_name": "nccl:all_reduce", "input_sizes": sizes}
    (tmp_path / "trace_0").write_bytes(pickle.dumps({"entries": [entry] * 1_000}))

    assert read(tmp_path.iterdir()).broken == (("trace_0", "it says more than its bytes can hold"),)


def test_a_file_that_is_too_long_is_refused(tmp_path, monkeypatch):
    """Before it is decoded."""
    monkeypatch.setattr(dump_format, "_MOST_BYTES", 1 << 20)
    (tmp_path / "trace_0").write_bytes(b"x" * (1 << 20) + b"x")

    assert read(tmp_path.iterdir()).broken == (("trace_0", "it is longer than 1 MiB"),)


def test_names_are_told_as_a_terminal_shows_them(tmp_path):
    """A file's, and a group's description: escapes and half characters are written as their codes."""
    (tmp_path / os.fsdecode(b"bad\xff_1")).write_bytes(b"x")
    config = {"0": {"name": "0", "desc": "\x1b[2J\nrank 5", "ranks": "[0, 1]"}}
    (tmp_path / "trace_0").write_bytes(pickle.dumps({"entries": [], "pg_config": config}))

    found = read(tmp_path.iterdir())

    assert [name for name, _ in found.broken] == ["bad\\udcff_1"]
    assert found.records[0].groups["0"].description == "\\x1b[2J\\nrank 5"


def test_a_second_dump_of_a_rank_is_told(tmp_path):
    """The first by name counts."""
    job = HungJob(1, stopped={2: 15})
    for name in ("a_3", "b_3"):
        (tmp_path / name).write_bytes(pickle.dumps(job.dump(3)))

    found = read(tmp_path.iterdir())

    assert found.broken == (("b_3", "there is another dump of rank 3"),)
    assert set(found.records) == {3}


def test_a_group_without_entries_has_its_status_by_its_place(tmp_path):
    """A rank that stopped long ago has nothing active; its statuses have numbers and no names."""
    job = HungJob(1, stopped={2: 15})
    for rank in range(8):
        dump = job.dump(rank)
        dump["entries"] = [each for each in dump["entries"] if not each["retired"]]
        (tmp_path / f"trace_{rank}").write_bytes(pickle.dumps(dump))

    found = read(tmp_path.iterdir())

    assert found.records[2].operations == ()
    assert [(each.rank, each.why) for each in judge(found.records, 8).blamed] == [(2, "absent")]


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("_dump_12", 12),
        ("nccl_trace_rank_3", 3),
        ("7", 7),
        ("rank_4.json", 4),
        ("r2.pkl", 2),
        ("fault_injection.log", None),
        ("trace-AR.parquet", None),
        ("core.99999999999999999999", None),
    ],
)
def test_a_dumps_name_ends_with_its_rank(name, rank):
    """Others are not taken for dumps."""
    assert rank_of(name) == rank
