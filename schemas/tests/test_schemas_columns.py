"""Columnar batches."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from samples import SAMPLES

from foliot_schemas import DelayBatch, DelayRow, StampBatch
from foliot_schemas.columns import pack, unpack

BATCHES = [sample for sample in SAMPLES if isinstance(sample, (StampBatch, DelayBatch))]


def test_rows_come_back_as_they_were():
    """Bytes columns lose nothing, also beyond float64's 53 bits."""
    rows = np.array([(1, 1, 5, 4, 1, 2, (1 << 62) + 1, -7)], dtype=DelayRow)

    assert (rows == unpack(pack(rows), DelayRow)).all()


def test_a_column_of_the_future_is_ignored():
    """An older reader takes the columns it knows."""
    rows = np.zeros(3, dtype=DelayRow)

    assert (rows == unpack({**pack(rows), "jitter_ns": b"12345678"}, DelayRow)).all()


@pytest.mark.parametrize("broken", [{"path": b""}, {"path": b"\0"}, {"path": None}])
def test_columns_that_do_not_fit_are_refused(broken):
    """Short, odd or missing columns are an error, never a shifted row."""
    columns = {**pack(np.zeros(3, dtype=DelayRow)), **broken}

    with pytest.raises(ValueError, match=r"column|buffer"):
        unpack({name: data for name, data in columns.items() if data is not None}, DelayRow)


@pytest.mark.parametrize("batch", BATCHES, ids=lambda batch: type(batch).__name__)
def test_a_row_cannot_name_what_the_batch_does_not_have(batch):
    """An index beyond the batch's own list is an error at the border, not an IndexError inside a core."""
    field = "streams" if isinstance(batch, StampBatch) else "paths"
    beheaded = msgspec.structs.replace(batch, **{field: ()})

    with pytest.raises(ValueError, match="does not have"):
        beheaded.rows()
