"""What slow workers cost, in traces of pipelines whose costs are known."""

from __future__ import annotations

import csv
import datetime as dt

import pyarrow as pa
import pyarrow.parquet
import pytest
from pipeline_trace import COLUMNS, EXCHANGE_S, UPDATE_S, WIRE_S, Pipeline

from draws import draws
from foliot.analysis.operator_trace import TraceError, read
from foliot.analysis.what_if import analyse


def written(folder, rows, suffix=".parquet"):
    """A trace's file."""
    file = folder / f"trace{suffix}"
    if suffix == ".csv":
        with file.open("w", newline="") as opened:
            csv.writer(opened).writerows([COLUMNS, *rows])
    else:
        columns = zip(*rows, strict=True) if rows else [[] for _ in COLUMNS]
        pyarrow.parquet.write_table(pa.table(dict(zip(COLUMNS, map(list, columns), strict=True))), file)
    return file


def usual_s(pipeline, mean_factor=1.0):
    """A step of which all computations take the same: the pipeline fills, runs, and empties."""
    turns = pipeline.batches + pipeline.stages - 1
    computing = turns * (pipeline.forward_s + pipeline.backward_s) * mean_factor
    return computing + 2 * (pipeline.stages - 1) * WIRE_S + EXCHANGE_S + UPDATE_S


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_a_job_of_equal_workers_loses_nothing(tmp_path, suffix):
    """And its simulated step is the recorded one."""
    rows, _ = Pipeline().rows()

    found = analyse(read(written(tmp_path, rows, suffix)))

    assert found.steps == 5
    assert found.slowdown == pytest.approx(1.0, abs=1e-3)
    assert found.slow == ()


@pytest.mark.parametrize(("worker", "factor"), [((0, 0), 2.0), ((2, 3), 1.5), ((3, 1), 1.3)])
def test_one_slow_worker_is_named_with_what_it_costs(tmp_path, worker, factor):
    """S is the recorded step over one in which all take the mean, by the formula of a pipeline."""
    pipeline = Pipeline(slow={worker: factor})
    rows, step_s = pipeline.rows()

    found = analyse(read(written(tmp_path, rows)))

    mean_factor = 1 + (factor - 1) / (pipeline.replicas * pipeline.stages)
    assert found.slowdown == pytest.approx(step_s / usual_s(pipeline, mean_factor), rel=0.01)
    assert [(each.replica, each.stage) for each in found.slow] == [worker]
    assert found.slow[0].share == pytest.approx(1.0, abs=0.1)
    assert found.of_slowest == pytest.approx(1.0, abs=0.1)


def test_two_slow_workers_are_both_named(tmp_path):
    """Though to mend one alone gains nothing."""
    rows, _ = Pipeline(slow={(1, 2): 1.5, (3, 2): 1.5}).rows()

    found = analyse(read(written(tmp_path, rows)))

    assert {(each.replica, each.stage) for each in found.slow} == {(1, 2), (3, 2)}


def test_a_stage_with_more_to_do_is_no_slow_worker(tmp_path):
    """The last stage computes the loss, in all replicas: M_s says so."""
    rows, _ = Pipeline(slow={(replica, 3): 1.5 for replica in range(4)}).rows()

    found = analyse(read(written(tmp_path, rows)))

    assert found.slow == ()
    assert found.of_last_stage > 0.8
    assert found.of_slowest < 0.5


@pytest.mark.parametrize("seed", draws(10))
def test_noise_is_nobodys_fault(tmp_path, seed):
    """Sequences of differing lengths: each computation takes a fifth more or less."""
    rows, step_s = Pipeline(noise=0.2, seed=seed, steps=10).rows()

    found = analyse(read(written(tmp_path, rows)))

    assert found.slow == ()
    assert found.slowdown == pytest.approx(step_s / usual_s(Pipeline()), rel=0.02)


@pytest.mark.parametrize("stages", [1, 2])
def test_short_pipelines_are_judged_too(tmp_path, stages):
    """Down to one without neighbours."""
    rows, _ = Pipeline(stages=stages, slow={(1, 0): 1.4}).rows()

    found = analyse(read(written(tmp_path, rows)))

    assert [(each.replica, each.stage) for each in found.slow] == [(1, 0)]


def test_a_step_with_a_gap_is_left_out(tmp_path):
    """The others are judged."""
    rows, _ = Pipeline(slow={(0, 0): 2.0}).rows()
    del rows[10]

    found = analyse(read(written(tmp_path, rows)))

    assert (found.steps, found.skipped) == (4, 1)
    assert [(each.replica, each.stage) for each in found.slow] == [(0, 0)]


def test_the_order_of_rows_does_not_matter(tmp_path):
    """They have times."""
    rows, _ = Pipeline(noise=0.1, slow={(0, 0): 2.0}).rows()

    assert analyse(read(written(tmp_path, rows[::-1]))) == analyse(read(written(tmp_path, rows)))


def changed(column, value, row=3):
    """Rows with one value changed."""
    rows, _ = Pipeline(steps=2).rows()
    at = COLUMNS.index(column)
    rows = [
        tuple(float(each) if n == at and not isinstance(each, str) else each for n, each in enumerate(one))
        for one in rows
    ]
    rows[row] = (*rows[row][:at], value, *rows[row][at + 1 :])
    return rows


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([], "it has no rows"),
        (changed("start_ts", float("nan")), "start_ts is not a number everywhere"),
        (changed("stage", 0.5), "stage is not a whole number everywhere"),
        (changed("duration", -1e-9), "duration is not between 0 and 1,000,000,000 s"),
        (changed("duration", 1e308), "duration is not between 0 and 1,000,000,000 s"),
        (changed("optype", None), "optype is not a text everywhere"),
        (changed("dp_rank", -1.0), "dp_rank is not between 0 and 1000000"),
        (changed("seq_id", 1e18), "seq_id is not a whole number everywhere"),
        (changed("dp_rank", 999_999.0), "no step has each operation of each replica once"),
        ([each for each in Pipeline(steps=1).rows()[0] if not each[4].endswith("compute")], "stage 0 computes nothing"),
        ([each for each in Pipeline(steps=1).rows()[0] if each[4] != "forward-recv"], "stage 0 sends 8 times forward"),
        ([(*each[:4], "sleep", *each[5:]) for each in Pipeline(steps=1).rows()[0]], "no step has each operation"),
    ],
)  # fmt: skip
def test_a_trace_that_cannot_be_judged_has_a_reason(tmp_path, rows, why):
    """In a sentence."""
    with pytest.raises(TraceError, match=f"^{why}"):
        analyse(read(written(tmp_path, rows)))


def test_dates_are_no_seconds(tmp_path):
    """They would be read as nanoseconds, or whatever the file counts in."""
    rows, _ = Pipeline(steps=1).rows()
    dated = [(*each[:5], dt.datetime.fromtimestamp(each[5], dt.UTC), *each[6:]) for each in rows]

    with pytest.raises(TraceError, match=r"^start_ts is a date, and no number of seconds$"):
        read(written(tmp_path, dated))


def test_steps_that_take_no_time_have_a_reason(tmp_path):
    """Nothing is a share of them."""
    rows, _ = Pipeline(steps=1).rows()

    with pytest.raises(TraceError, match=r"^its steps take no time$"):
        analyse(read(written(tmp_path, [(*each[:6], 0.0, *each[7:]) for each in rows])))


def test_rows_that_share_nothing_make_no_grid(tmp_path):
    """Each its own operation, replica and step: a grid of them would have 27 million places."""
    rows = [(n, 0, n, n, "forward-compute", 0.0, 1.0, n, 0, n, 0) for n in range(300)]

    with pytest.raises(TraceError, match=r"^its ranks do not do the same operations in each step$"):
        read(written(tmp_path, rows))


def test_an_operation_that_is_no_steps_is_named(tmp_path):
    """What it does to the step is not known."""
    rows, _ = Pipeline(steps=1).rows()

    with pytest.raises(TraceError, match=r"^checkpoint is no operation of a step$"):
        analyse(
            read(
                written(
                    tmp_path, [(*each[:4], "checkpoint" if each[4] == "gc" else each[4], *each[5:]) for each in rows]
                )
            )
        )


@pytest.mark.parametrize(
    ("suffix", "data"), [(".parquet", b"PAR1"), (".csv", b""), (".csv", b"a,b\n1,2\n"), (".parquet", b"x" * 99)]
)
def test_a_file_that_is_no_trace_has_a_reason(tmp_path, suffix, data):
    """As of dumps."""
    (tmp_path / f"trace{suffix}").write_bytes(data)

    with pytest.raises(TraceError, match=r"^it (cannot be read: .|has no column dp_rank)"):
        read(tmp_path / f"trace{suffix}")
