"""Settings as the text of a TOML file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def toml(document: Mapping[str, Mapping[str, Any]]) -> str:
    """Sections of plain values as TOML; lists of tables inline."""
    sections = (
        "\n".join([f"[{section}]", *(f"{key} = {_value(value)}" for key, value in values.items())])
        for section, values in document.items()
    )
    return "\n\n".join(sections) + "\n"


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_value, value)) + "]"
    return json.dumps(value)  # strings, numbers and booleans are written alike in JSON and TOML
