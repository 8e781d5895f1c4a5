"""``foliot analyse``: what it says of a folder of dumps and of a trace, and what of anything else."""

from __future__ import annotations

import json
import pickle

import pytest
from pipeline_trace import COLUMNS, Pipeline

from foliot import cli
from hung_job import HungJob


@pytest.fixture
def dumps(tmp_path):
    """A folder of eight dumps, of which rank 2 holds up the others; one was cut, and there is a log besides."""
    job = HungJob(1, stopped={2: 15})
    for rank in range(8):
        (tmp_path / f"trace_{rank}").write_bytes(pickle.dumps(job.dump(rank)))
    (tmp_path / "trace_6").write_bytes((tmp_path / "trace_6").read_bytes()[:500])
    (tmp_path / "job.log").write_text("a log\n")
    return tmp_path


@pytest.fixture
def trace(tmp_path):
    """A trace with one slow worker."""
    file = tmp_path / "trace.csv"
    rows, _ = Pipeline(slow={(2, 1): 2.0}).rows()
    file.write_text("\n".join(",".join(map(str, each)) for each in [COLUMNS, *rows]))
    return file


def asked(capsys, *arguments):
    """Its exit status, output and errors."""
    status = cli.main(["analyse", *map(str, arguments)])
    out, errors = capsys.readouterr()
    return status, out, errors


def test_dumps_as_one_object(capsys, dumps):
    """Its keys are what tools rely on."""
    status, out, errors = asked(capsys, dumps, "--json")

    found = json.loads(out)
    assert (status, errors) == (0, "")
    (broken,) = found.pop("broken")
    assert broken["file"] == "trace_6"
    assert broken["reason"]
    (blamed,) = found.pop("blamed")
    assert (blamed["rank"], blamed["why"]) == (2, "absent")
    assert set(blamed) == {"rank", "why", "group", "collective", "seq"}
    assert found == {"kind": "dumps", "expected": 8, "read": 7, "mismatches": [], "certain": False}


def test_dumps_in_lines(capsys, dumps):
    """For people: who, in what, and how sure it is."""
    status, out, _ = asked(capsys, dumps)

    assert status == 0
    assert out.startswith("7 of 8 ranks\n  not read: trace_6: ")
    assert "\nrank 2 has not begun it, and has nothing else to do: " in out
    assert out.endswith("this is not certain: dumps are missing, or not all that waits is explained by it\n")


def test_a_mismatch_is_told_with_the_ranks(capsys, tmp_path):
    """Those that differ."""
    job = next(each for seed in range(100) if (each := HungJob(seed, differing={5: 15})).groups[_group(each)][2:])
    for rank in range(8):
        (tmp_path / f"trace_{rank}").write_bytes(pickle.dumps(job.dump(rank)))

    _, out, _ = asked(capsys, tmp_path, "--json")
    _, lines, _ = asked(capsys, tmp_path)

    (found,) = json.loads(out)["mismatches"]
    assert found == {"group": _group(job), "seq": found["seq"], "field": "size", "ranks": [5]}
    assert "\nrank 5 began something else than most: " in lines
    assert "\nsize differs in " in lines


def _group(job):
    return job.ranks[5].steps[15].group


def test_one_dump_is_judged_as_far_as_it_goes(capsys, dumps):
    """Others may all wait for the same, or for each other."""
    status, out, _ = asked(capsys, dumps / "trace_3", "--json")

    found = json.loads(out)
    assert (status, found["read"], found["expected"], found["certain"]) == (0, 1, 8, False)
    assert {each["why"] for each in found["blamed"]} <= {"dead"}


def test_a_trace_as_one_object(capsys, trace):
    """A folder in which it is the only one is as good as its name."""
    status, out, errors = asked(capsys, trace.parent, "--json")

    found = json.loads(out)
    assert (status, errors) == (0, "")
    assert set(found) == {"kind", "steps", "s", "ms", "mw", "slow"}
    assert (found["kind"], found["steps"]) == ("trace", 5)
    assert found["s"] > 1.3
    (slow,) = found["slow"]
    assert (slow["dp_rank"], slow["stage"]) == (2, 1)
    assert slow["share"] == pytest.approx(1.0, abs=0.1)


def test_a_trace_in_lines(capsys, trace):
    """The loss, whose it is, and by whom."""
    _, out, _ = asked(capsys, trace)

    assert out.startswith("5 steps, 1.")
    assert "\nslow: dp rank 2, stage 1: alone it costs " in out


@pytest.mark.parametrize(
    ("made", "why"),
    [
        ({}, "it holds neither dumps, whose names end with a rank, nor a trace (.parquet, .csv)"),
        ({"trace_0": b"x", "trace_1": b""}, "no dump can be read; trace_0: it is neither a pickle nor JSON as"),
        ({"a.csv": b"", "b.csv": b""}, "it holds 2 traces: name one"),
        ({"a.csv": b"", "trace_0": b""}, "it holds dumps and a trace: name the file"),
        ({"a.csv": b"x\n1\n"}, "it has no column dp_rank"),
    ],
)
def test_where_nothing_can_be_judged_a_sentence_says_why(capsys, tmp_path, made, why):
    """The status is 2, and nothing else is printed."""
    for name, data in made.items():
        (tmp_path / name).write_bytes(data)

    status, out, errors = asked(capsys, tmp_path, "--json")

    assert (status, out) == (2, "")
    assert errors.startswith(f"foliot analyse: {tmp_path}: {why}")
    assert errors.count("\n") == 1


def test_a_path_that_is_not_there_is_said(capsys, tmp_path):
    """As any command would."""
    assert asked(capsys, tmp_path / "none") == (2, "", f"foliot analyse: {tmp_path / 'none'}: there is no such file\n")
