"""What was once sent can be read forever."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from samples import SAMPLES

from foliot_schemas import WireError, decode, encode
from foliot_schemas.subjects import BUCKETS, CHANNELS

GOLDEN = Path(__file__).parent / "golden"


def tag(message: msgspec.Struct | type[msgspec.Struct]) -> str:
    """The name and version of a message."""
    return str(message.__struct_config__.tag)


@pytest.mark.parametrize("sample", SAMPLES, ids=tag)
def test_a_golden_file_decodes_to_the_sample_it_was_made_from(sample):
    """Bytes of every released version still mean what they meant."""
    golden = GOLDEN / f"{tag(sample)}.msgpack"

    assert sample == decode(golden.read_bytes(), type(sample))


@pytest.mark.parametrize("sample", SAMPLES, ids=tag)
def test_a_message_survives_the_wire(sample):
    """Encoding and decoding give the same message back."""
    assert sample == decode(encode(sample), type(sample))


def test_every_message_of_the_contract_has_a_golden_file():
    """A new message cannot be forgotten."""
    promised = {tag(channel.message) for channel in CHANNELS} | {tag(bucket.message) for bucket in BUCKETS}

    assert promised <= {path.stem for path in GOLDEN.glob("*.msgpack")}


def test_every_golden_file_is_decoded():
    """None is left lying after its message has gone."""
    assert {path.stem for path in GOLDEN.glob("*.msgpack")} == {tag(sample) for sample in SAMPLES}


@pytest.mark.parametrize("sample", SAMPLES, ids=tag)
def test_fields_of_a_newer_sender_are_ignored(sample):
    """A decoder reads a message that knows more than it does."""
    fields = msgspec.msgpack.decode(encode(sample)) | {"from_the_future": [1, 2, 3]}

    assert sample == decode(msgspec.msgpack.encode(fields), type(sample))


@pytest.mark.parametrize("sample", SAMPLES, ids=tag)
def test_any_truncation_is_a_wire_error(sample):
    """Half a message is refused as such, whatever half."""
    data = encode(sample)

    for length in range(len(data)):
        with pytest.raises(WireError):
            decode(data[:length], type(sample))


def test_another_message_is_a_wire_error():
    """The tag keeps messages apart that would otherwise fit."""
    with pytest.raises(WireError, match=r"not a lease\.v1"):
        decode(encode(SAMPLES[0]), type(next(s for s in SAMPLES if tag(s) == "lease.v1")))
