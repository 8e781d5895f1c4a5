"""Where benches of a lab run, and where they do not begin."""

from __future__ import annotations

import pytest

from bench import place
from foliot_lab import budget
from foliot_lab.budget import Now
from foliot_lab.demo import demo


def test_a_bench_does_not_begin_where_its_lab_is_not_carried(monkeypatch, capsys):
    """It says what is lacking and ends with the status for what cannot be done, before it has made anything."""
    slow = Now(idle_cpu=1.0, stolen_cpu=0.0, fixed_work_s=2.13, processors=2)
    monkeypatch.setattr(budget.Now, "look", lambda _: slow)
    monkeypatch.setattr(place.kernel, "is_privileged", lambda: True)
    monkeypatch.setattr(place.kernel, "missing", list)
    monkeypatch.setattr(place.kernel, "enter", lambda: pytest.fail("it went on"))
    assert place.enter(carries=demo(8)) is False
    said = capsys.readouterr().err
    assert said.startswith(
        "A fabric of 8 hosts on 2 rails would keep 10 of this machine's 2 processors busy, and 5% must be left"
    )
    assert place.CANNOT == 77
