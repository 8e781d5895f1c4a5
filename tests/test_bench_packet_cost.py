"""The bench packet-cost compares what does the same work."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest

from bench import place
from bench.packet_cost.__main__ import further
from foliot import native


def test_the_price_of_a_further_probe_is_a_slope():
    """What a tick costs without any probe is not in it, and each turn has its own line."""
    taken = {("native", 10): [25.0, 26.0, 24.0], ("native", 30): [55.0, 58.0, 50.0]}
    taken |= {("bare", 10): [10.0, 10.0, 10.0], ("bare", 30): [30.0, 30.0, 30.0]}

    price, bare = further(taken, ["native", "bare"])

    assert (price.us, price.us_least, price.us_most, price.times_bare) == (1.5, 1.3, 1.6, 1.5)
    assert bare.times_bare == 1.0


@pytest.mark.skipif(bool(native.why_python()), reason=f"nothing is compiled: {native.why_python()}")
@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler for the program that it is compared with")
def test_all_three_send_and_hear_every_probe_with_its_stamps(tmp_path):
    """Else it ends with an error. Each has a row for each number of streams."""
    file = tmp_path / "rows.json"
    command = [sys.executable, "-m", "bench", "packet-cost", "--peers", "1", "3", "--turns", "1", "--ticks", "30"]
    ended = subprocess.run([*command, "--json", str(file)], check=False, capture_output=True, text=True, timeout=120)
    if ended.returncode == place.CANNOT:
        pytest.skip(ended.stderr.strip())

    assert ended.returncode == 0, ended.stderr
    said = json.loads(file.read_text())
    rows = {(row["path"], row["streams"]) for row in said["rows"]}
    assert rows == {(path, streams) for path in ("native", "python", "bare") for streams in (4, 12)}
    assert all(row["us_per_tick"] > 0 for row in said["rows"])
    assert {price["path"] for price in said["further"]} == {"native", "python", "bare"}
