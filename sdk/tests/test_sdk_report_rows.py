"""Rows of reported paths are looked up once, until their meaning changes."""

from foliot.report_rows import ReportRows

NAMES = tuple(f"a.r>b.r#{entropy}" for entropy in range(8))


def test_a_short_word_does_not_displace_the_regular_report():
    """Whose rows are found by one comparison, until all are forgotten."""
    rows, asked = ReportRows(), []

    def row(name):
        asked.append(name)
        return len(asked)

    first = rows.of("b", NAMES, row)
    assert first.tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert rows.of("b", NAMES[:1], row).tolist() == [9]
    assert rows.of("b", tuple(str(name) for name in NAMES), row) is first
    assert rows.of("c", NAMES, row)[0] == 10
    rows.forget()
    assert rows.of("b", NAMES, row)[0] == 18


def test_other_paths_are_looked_up():
    """Also as many as before."""
    rows = ReportRows()
    rows.of("b", NAMES, NAMES.index)
    assert rows.of("b", NAMES[::-1], NAMES.index).tolist() == [7, 6, 5, 4, 3, 2, 1, 0]
