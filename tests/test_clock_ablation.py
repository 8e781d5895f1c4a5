"""The bench of the clock's parts: each variant is another chain on the same stamps; what chance does is not told."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

from bench import clock_sim
from bench.clock_sim import Tool
from bench.studies import clock_ablation
from bench.studies.clock_ablation import CASES, TOOLS, WHOLE, compare
from foliot_sync.core.solve.least_squares import Edges

SMALL = ["--nics", "12", "--neighbours", "4", "--entropies", "2", "--settle", "5", "--windows", "2"]


@pytest.fixture(scope="module")
def runs():
    """Of all variants, by name; and of the whole alone, before and after them.

    With stamps so often wrong that some are left out in any window.
    """
    arguments = clock_sim.parser().parse_args([*SMALL, "--outlier-share", "0.1"])

    def run(*tools):
        judged = clock_sim.simulate(arguments, 12, 0.6, "both", 7, tools=tools)
        return {each.row.tool: each for each in judged if each.row.of == "pair"}

    return run(WHOLE), run(*TOOLS), run(WHOLE)


def test_the_whole_is_what_it_is_without_variants(runs):
    """It runs beside them on the same stamps, and nothing that they replace stays replaced."""
    before, among, after = (each["foliot"].wrong_ns for each in runs)
    assert (among == before).all()
    assert (after == before).all()


@pytest.mark.parametrize("tool", [tool.name for tool in TOOLS if tool != WHOLE])
def test_a_variant_says_something_else(runs, tool):
    """Of most moments: a variant of which no part is in use would be the whole."""
    _, among, _ = runs
    assert (among[tool].wrong_ns != among["foliot"].wrong_ns).mean() > 0.2


def test_each_function_that_a_variant_replaces_is_called():
    """Each by itself: where a variant replaces two, one of them is enough to say something else."""
    called = set()

    def watched(place, instead):
        def stand_in(*arguments, **options):
            called.add(place)
            return instead(*arguments, **options)

        return stand_in

    places = {place: instead for tool in TOOLS for place, instead in tool.replaced.items() if callable(instead)}
    tools = [Tool(place, None, {place: watched(place, instead)}) for place, instead in places.items()]
    arguments = clock_sim.parser().parse_args([*SMALL, "--settle", "1", "--windows", "1"])
    clock_sim.simulate(arguments, 12, 0.6, "both", 7, tools=tools)
    assert called == set(places)
    assert len(places) > 8


def test_a_tree_believes_one_way_alone():
    """The better of two ways round a loop that does not close, and the better of two parallel edges."""
    ends = np.array([0, 1, 0, 1]), np.array([1, 2, 2, 0])
    edges = Edges(*ends, np.array([-10.0, -10.0, -50.0, 90.0]), np.array([1.0, 1.0, 9.0, 2.0]))
    found = clock_ablation._tree(edges, 3, 0)
    assert found.value == pytest.approx([0, 10, 20])
    assert found.accepted.tolist() == [True, True, False, False]
    assert found.variance == pytest.approx([0, 1, 2])


def test_what_chance_does_is_not_told():
    """Of the same errors, others like them, and some that are all larger by a little."""
    random = np.random.default_rng(3)
    whole = [np.abs(random.normal(0, 10, (12, 200))) for _ in range(3)]
    others = [np.abs(random.normal(0, 10, (12, 200))) for _ in range(3)]
    assert compare("case", "foliot", whole, whole).signs == (" ", " ")
    assert compare("case", "like it", others, whole).signs == (" ", " ")
    worse = compare("case", "worse", [each + 1 for each in whole], whole)
    assert worse.signs == ("+", "+")
    assert worse.mean_more_ns == pytest.approx(1)
    assert compare("case", "one window", [whole[0][:1] + 1], [whole[0][:1]]).signs == (" ", " ")


def test_the_bench_runs(monkeypatch, tmp_path, capsys):
    """A cell for each variant in each case, and a row for each run."""
    file = tmp_path / "rows.json"
    monkeypatch.setattr(
        sys, "argv", ["", *SMALL, "--nics", "8", "--settle", "1", "--windows", "1", "--seeds", "4", "--json", str(file)]
    )
    monkeypatch.setattr(clock_ablation, "CASES", (CASES[2], CASES[-1]._replace(windows=1, times=2)))
    assert clock_ablation.main() == 0
    said = json.loads(file.read_text())
    assert {(cell["case"], cell["tool"]) for cell in said["cells"]} == {
        (case.name, tool.name) for case in (CASES[2], CASES[-1]) for tool in TOOLS
    }
    assert len(said["rows"]) == 3 * len(TOOLS)
    assert {row["bench"] for row in said["rows"]} == {"clock-ablation"}
    assert {row["settled"] for row in said["rows"]} == {0, 1}
    assert len(capsys.readouterr().out.splitlines()) == 4
