"""``foliot decode``: messages that another tool received."""

from __future__ import annotations

import base64
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from foliot.cli import main
from foliot_schemas import Lease, encode
from patience import patience

FOLIOT = Path(sys.executable).with_name("foliot")
SUBJECT = "foliot.v1.rejected.sync"
MESSAGE = msgspec.msgpack.encode(
    {"type": "rejected.v1", "service": "sync", "subject": "s", "reason": "r", "head": b"\n"}
)
"""Ends with a line end of its own."""


@pytest.fixture
def decode(monkeypatch, capsys):
    """Decodes data, in this process: its exit status, output and errors."""

    def decode(data, *options):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        return main(["decode", *options]), *capsys.readouterr()

    return decode


def dumped(data, message_id):
    """A message as ``nats sub --dump=-`` writes it."""
    headers = {"Nats-Msg-Id": [message_id]}
    whole = {"Subject": SUBJECT, "Reply": "", "Header": headers, "Data": base64.b64encode(data).decode()}
    return json.dumps(whole).encode() + b"\0"


@pytest.mark.parametrize("end", [b"", b"\n"], ids=["as it is", "with a line end"])
def test_one_message_is_decoded(decode, end):
    """As ``--translate`` and ``--raw`` hand it over; the line end of a message itself is not taken for theirs."""
    assert MESSAGE.endswith(b"\n")

    status, out, errors = decode(MESSAGE + end)

    assert (status, errors) == (0, "")
    assert out.endswith("sync could not read s: r\n")


def test_an_extension_that_cannot_be_loaded_is_said(decode, monkeypatch):
    """In a sentence that names the setting, not a traceback."""
    monkeypatch.setenv("FOLIOT_EXTENSIONS__MODULES", '["no_such_module"]')

    status, out, errors = decode(MESSAGE)

    assert (status, out) == (1, "")
    assert errors.startswith("foliot decode: extensions.modules: no_such_module cannot be loaded: ")


def test_a_reader_that_has_had_enough_is_no_error():
    """As with `| head`: nobody wants to read of a broken pipe then, from this command or any other."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [FOLIOT, "decode"], input=MESSAGE, stdout=writing, stderr=subprocess.PIPE, timeout=patience(30), check=False
        )
    finally:
        os.close(writing)

    assert (done.returncode, done.stderr) == (0, b"")


def test_many_messages_are_decoded_as_they_come():
    """Each line is out before the next message is in."""
    with subprocess.Popen([FOLIOT, "decode", "--json"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        for number in range(3):
            running.stdin.write(dumped(MESSAGE, f"e{number}"))
            running.stdin.flush()
            line = json.loads(running.stdout.readline())

            assert (line["subject"], line["headers"]) == (SUBJECT, {"Nats-Msg-Id": f"e{number}"})
            assert line["message"]["reason"] == "r"
        running.stdin.close()
        assert running.stdout.read() == b""
    assert running.returncode == 0


def test_messages_that_come_in_pieces_are_whole(decode):
    """Also the last one without its zero byte."""
    whole = b"".join(dumped(encode(Lease(holder="x" * 100_000)), str(number)) for number in range(3))

    status, out, _ = decode(whole.removesuffix(b"\0"), "--json")

    assert status == 0
    assert [json.loads(line)["headers"]["Nats-Msg-Id"] for line in out.splitlines()] == ["0", "1", "2"]


@pytest.mark.parametrize("data", [b"{not json", b'{"Data": "x"}\0'])
def test_what_is_no_dump_is_refused(decode, data):
    """With a sentence instead of a traceback."""
    status, out, errors = decode(data)

    assert (status, out) == (1, "")
    assert errors.startswith("foliot decode: not what `nats sub --dump=-` writes: ")


@pytest.mark.parametrize("data", [b"", b"\xff", b"text"])
def test_what_is_no_message_is_said(decode, data):
    """As in ``foliot watch``, nothing fails for it."""
    status, out, _ = decode(data)

    assert status == 0
    assert "that cannot be read: no message of Foliot's" in out
