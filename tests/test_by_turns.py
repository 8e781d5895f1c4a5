"""Two checkouts by turns: figures are paired turn by turn, and a bench that fails is no figure."""

from __future__ import annotations

import pytest

from bench.studies.by_turns import Checkout, Trial, compare

MAKEFILE = "bench:\n\t@$(MAKE) -s $(NAME) FILE=$(lastword $(ARGS))\nroad:\n\t@echo '{\"rows\": [1, 2]}' > $(FILE)\n"
ROAD = Trial("road", "--count 2", lambda document: iter([("rows", float(len(document["rows"])))]))


def test_ratios_are_of_turns_and_not_of_medians():
    """A machine that was half as fast in one turn was so on both sides."""
    [row] = compare("road", [{"p50": 10.0}, {"p50": 20.0}, {"p50": 10.0}], [{"p50": 11.0}, {"p50": 22.0}, {"p50": 9.0}])
    assert (row.before_median, row.after_median) == (10.0, 11.0)
    assert (row.ratio, row.ratio_least, row.ratio_most) == (1.1, 0.9, 1.1)


def test_a_count_of_zero_has_no_ratio_and_a_figure_of_one_side_no_row():
    """What did not happen before cannot be divided by, and what only one side tells cannot be compared."""
    rows = compare("chaos", [{"lost": 0.0, "old": 1.0}], [{"lost": 2.0, "new": 1.0}])
    assert [(row.figure, row.before, row.after, row.ratio) for row in rows] == [("lost", [0.0], [2.0], None)]


def test_a_checkout_runs_its_own_bench_and_says_which_failed(tmp_path):
    """By its own Makefile, with the settings and a file of its own."""
    (tmp_path / "Makefile").write_text(MAKEFILE)
    checkout = Checkout(tmp_path, tmp_path / "results")
    assert checkout.run(ROAD, 0) == {"rows": 2.0}
    with pytest.raises(RuntimeError, match="fleet ended with 2"):
        checkout.run(Trial("fleet", "", ROAD.read), 0)
