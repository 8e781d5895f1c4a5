"""Columnar batches."""

from __future__ import annotations

import re

import msgspec
import numpy as np
import pytest
from samples import SAMPLES

from foliot_schemas import (
    DelayBatch,
    DelayCount,
    DelayRow,
    FitBatch,
    FlowBatch,
    FlowRow,
    StampBatch,
    WireError,
    decode,
    encode,
)
from foliot_schemas.columns import pack, unpack
from foliot_schemas.delay_buckets import BUCKETS, MIDDLE_NS, bucket_of
from foliot_schemas.flow import FLOW_LATER
from foliot_schemas.observation import DELAY_LATER

BATCHES = [sample for sample in SAMPLES if isinstance(sample, (StampBatch, DelayBatch, FitBatch))]
NAMED = {StampBatch: "streams", DelayBatch: "paths", FitBatch: "clocks"}
FIT = next(sample for sample in SAMPLES if isinstance(sample, FitBatch))


def test_rows_come_back_as_they_were():
    """Bytes columns lose nothing, also beyond float64's 53 bits."""
    rows = np.array([(1, 1, 5, 4, 1, 2, (1 << 62) + 1, -7, 9, 1, 1, 1_450, 3)], dtype=DelayRow)

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
    "broken", [{"stream": b"\xff\xff"}, {"direction": b""}, {"transmit_ns": b"\xff" * 7 + b"\x7f"}]
)
def test_stamps_are_refused_without_their_rows(broken):
    """Sync reads columns as they are, and must hear of what does not fit as whoever reads rows."""
    sample = next(sample for sample in SAMPLES if isinstance(sample, StampBatch))
    columns = StampBatch.of(sample.rows()[:1], node=sample.node, since_ns=0, until_ns=1, epoch_ns=0, streams=()).columns
    sound, wrong = (msgspec.structs.replace(sample, columns=each) for each in (columns, {**columns, **broken}))

    sound.check_rows()
    with pytest.raises(ValueError, match=r"does not have|differ in length|146 years") as told:
        wrong.rows()
    with pytest.raises(ValueError, match=re.escape(str(told.value))):
        wrong.check_rows()


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


# -- how delays are spread ---------------------------------------------------------------------------------------------


def counted(*rows, paths=("node0.rail0>node3.rail0#2", "node3.rail0>node0.rail0#2")):
    """A batch of node3 with these rows of its histogram."""
    return DelayBatch.of(
        np.zeros(0, DelayRow), np.array([*rows], DelayCount), node="node3", at_ns=0, interval_ns=1, bound_ns=-1,
        paths=paths,
    )  # fmt: skip


def test_counts_of_delays_come_back_as_they_were():
    """Four bytes each."""
    rows = [(0, 80, 3), (0, 81, 255)]
    assert decode(encode(counted(*rows)), DelayBatch).delay_counts().tolist() == rows
    assert len(encode(counted(*rows))) - len(encode(counted(rows[0]))) == 4


def test_a_node_of_before_counts_no_delays():
    """None is not the same as an empty histogram, in which no delay is known."""
    old = next(sample for sample in SAMPLES if isinstance(sample, DelayBatch))
    assert old.delay_counts() is None
    assert decode(encode(counted()), DelayBatch).delay_counts().tolist() == []


@pytest.mark.parametrize(
    ("batch", "reason"),
    [
        (counted((2, 80, 1)), "does not have"),
        (counted((1, 80, 1)), "other end"),
        (counted((0, 80, 1), paths=("node0.rail0>node1.rail0#2",)), "neither begins nor ends"),
        (msgspec.structs.replace(counted((0, 80, 1)), histogram={"path": b"\0\0", "bucket": b"P"}), "no column"),
        (
            msgspec.structs.replace(counted((0, 80, 1)), histogram={"path": b"\0\0", "bucket": b"P", "probes": b""}),
            "length",
        ),
    ],
    ids=["no path", "not the receiver", "a stranger's", "a column missing", "odd columns"],
)
def test_counts_that_make_no_sense_are_refused(batch, reason):
    """At the border, as rows are."""
    with pytest.raises(WireError, match=reason):
        decode(encode(batch), DelayBatch)


def test_buckets_are_what_the_contract_says():
    """Bucket n has what is at least 2^((n-1)/12) µs and less than 2^(n/12) µs; the ends have all the rest."""
    microsecond = 1_000
    delays = np.array([-(1 << 62), -1, 0, 999, 1_000, 1_999, 2_000, 1_024_000, (1 << 31) * microsecond, 1 << 62])
    assert bucket_of(delays).tolist() == [0, 0, 0, 0, 1, 12, 13, 121, 255, 255]


def test_a_buckets_middle_is_within_3_percent_of_its_delays():
    """So is whatever is made of counts."""
    delay_ns = np.exp(np.random.default_rng(1).uniform(np.log(1e3), np.log(2e9), 10_000)).astype(np.int64)
    middle_ns = MIDDLE_NS[bucket_of(delay_ns)]
    assert np.abs(middle_ns / delay_ns - 1).max() < 0.03
    assert (np.diff(MIDDLE_NS) > 0).all()
    assert (bucket_of(MIDDLE_NS) == np.arange(BUCKETS)).all()


def between_nics(**fields):
    """A batch of nothing between service addresses and of one flow between NICs."""
    rows = np.zeros(1, FlowRow)
    rows["rtt_ns"], rows["busiest_acked_bytes"] = 400_000, 70_000
    header = {"node": "node0", "at_ns": 1, "interval_ns": 2, "flows": (), "nic_flows": ("node0.rail0>node3.rail0",)}
    return FlowBatch.of(np.zeros(0, FlowRow), rows, **(header | fields))


def test_flows_between_nics_travel_beside_those_between_service_addresses():
    """Who knows only the latter sees none."""
    batch = decode(encode(between_nics()), FlowBatch)
    assert (len(batch.rows()), batch.nic_flows) == (0, ("node0.rail0>node3.rail0",))
    assert batch.nic_rows()[["rtt_ns", "busiest_acked_bytes"]].tolist() == [(400_000, 70_000)]


def test_a_node_of_before_tells_nothing_of_nics():
    """Nor of its busiest connections, nor of what its own packets take."""
    old = next(sample for sample in SAMPLES if isinstance(sample, FlowBatch))
    assert not FLOW_LATER & set(old.columns)
    assert len(old.nic_rows()) == 0
    assert old.rows()[["busiest_acked_bytes", "in_band_ns"]].tolist() == [(0, 0)]


@pytest.mark.parametrize(("fields", "reason"), [
    ({"nic_flows": ("node1.rail0>node3.rail0",)}, "does not begin at node0"),
    ({"nic_flows": ()}, "a row names a flow that the batch does not have"),
])  # fmt: skip
def test_flows_between_nics_are_the_senders_to_speak_of(fields, reason):
    """As those between service addresses."""
    with pytest.raises(WireError, match=reason):
        decode(encode(between_nics(**fields)), FlowBatch)
