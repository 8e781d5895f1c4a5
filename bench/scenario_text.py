"""A scenario as the text of a file for ``foliot lab run``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from foliot.text.toml_text import toml, value_text

if TYPE_CHECKING:
    from foliot_lab.scenario.spec import Scenario


def scenario_text(scenario: Scenario) -> str:
    """The TOML from which `parse_scenario` reads a scenario of jobs that is the same."""
    run = {"duration_s": scenario.duration_s}
    if scenario.solo_s is not None:
        run["solo_s"] = scenario.solo_s
    tables = {
        "fabric": _given(scenario.fabric), "clock": _given(scenario.clock), "services": scenario.services,
        "expect": _given(scenario.expect), "run": run,
    }  # fmt: skip
    arrays = [("job", job) for job in scenario.jobs] + [("fault", fault) for fault in scenario.faults]
    return toml(tables) + "".join(f"\n[[{name}]]\n{_lines(spec)}" for name, spec in arrays)


def _lines(spec: msgspec.Struct) -> str:
    return "".join(f"{key} = {value_text(value)}\n" for key, value in _given(spec).items())


def _given(spec: msgspec.Struct) -> dict[str, Any]:
    """The fields that are not as by default; TOML has no null, and None is always a default."""
    values = ((field, getattr(spec, field.name)) for field in msgspec.structs.fields(spec))
    return {field.name: msgspec.to_builtins(value) for field, value in values if value != field.default}
