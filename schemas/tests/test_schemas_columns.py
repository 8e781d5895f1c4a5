"""Columnar batches."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from samples import SAMPLES

from foliot_schemas import DelayBatch, DelayRow, FitBatch, StampBatch, WireError, decode, encode
from foliot_schemas.columns import pack, unpack
from foliot_schemas.observation import DELAY_LATER

BATCHES = [sample for sample in SAMPLES if isinstance(sample, (StampBatch, DelayBatch, FitBatch))]
NAMED = {StampBatch: "streams", DelayBatch: "paths", FitBatch: "clocks"}
FIT = next(sample for sample in SAMPLES if isinstance(sample, FitBatch))


def test_rows_come_back_as_they_were():
    """Bytes columns lose nothing, also beyond float64's 53 bits."""
    rows = np.array([(1, 1, 5, 4, 1, 2, (1 << 62) + 1, -7, 9, 1, 1, 1_450)], dtype=DelayRow)

    assert (rows == unpack(pack(rows), DelayRow)).all()


def test_a_column_of_the_future_is_ignored():
    """An older reader takes the columns it knows."""
    rows = np.zeros(3, dtype=DelayRow)

    assert (rows == unpack({**pack(rows), "jitter_ns": b"12345678"}, DelayRow)).all()


def test_a_column_that_was_added_may_be_missing():
    """An older sender does not say it: it reads as 0."""
    old = next(sample for sample in SAMPLES if isinstance(sample, DelayBatch))

    assert not DELAY_LATER & set(old.columns)
    for column in DELAY_LATER:
        assert old.rows()[column].tolist() == [0, 0]


def test_a_sequence_that_would_overflow_is_refused():
    """Cores take differences of sequences."""
    rows = np.zeros(1, DelayRow)
    rows["sequence"] = (1 << 63) - 1
    batch = DelayBatch.of(rows, node="node3", at_ns=0, interval_ns=1, bound_ns=-1, paths=("node0.rail0>node3.rail0#2",))

    with pytest.raises(ValueError, match="sequence"):
        batch.rows()


@pytest.mark.parametrize("broken", [{"path": b""}, {"path": b"\0"}, {"path": None}])
def test_columns_that_do_not_fit_are_refused(broken):
    """Short, odd or missing columns are an error, never a shifted row."""
    columns = {**pack(np.zeros(3, dtype=DelayRow)), **broken}

    with pytest.raises(ValueError, match=r"column|buffer"):
        unpack({name: data for name, data in columns.items() if data is not None}, DelayRow)


@pytest.mark.parametrize("batch", BATCHES, ids=lambda batch: type(batch).__name__)
def test_a_row_cannot_name_what_the_batch_does_not_have(batch):
    """An index beyond the batch's own list is an error at the border, not an IndexError inside a core."""
    beheaded = msgspec.structs.replace(batch, **{NAMED[type(batch)]: ()})

    with pytest.raises(ValueError, match="does not have"):
        beheaded.rows()


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("responder", 0),
        ("variance", 0.0),
        ("slope_variance", -1.0),
        ("offset_ns", np.nan),
        ("slope_ppb", np.inf),
        ("noise_ns", -1.0),
        ("upper_ns", -9_000.0),
        ("base_ns", -(1 << 63)),
        ("at_ns", 1 << 62),
    ],
)
def test_what_no_fit_can_be_is_refused(column, value):
    """The leader's arithmetic may rely on it; for a stepped clock, only the two clocks must make sense."""
    rows = FIT.rows().copy()
    rows[column] = value
    with pytest.raises(WireError, match="no fit"):
        decode(encode(FitBatch.of(rows, **header())), FitBatch)
    rows["torn"] = 1
    if column not in {"responder", "base_ns", "at_ns"}:
        assert decode(encode(FitBatch.of(rows, **header())), FitBatch).rows()["torn"] == 1


def test_a_part_that_there_is_not_is_refused():
    """The code that joins the parts relies on it."""
    with pytest.raises(WireError, match="part 1 of 1"):
        decode(encode(msgspec.structs.replace(FIT, part=1)), FitBatch)


def header():
    """The sample's fields but its columns."""
    return {name: getattr(FIT, name) for name in FIT.__struct_fields__ if name != "columns"}
