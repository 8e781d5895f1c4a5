"""Settings as the text of a TOML file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def toml(document: Mapping[str, Mapping[str, Any]]) -> str:
    """Sections of plain values as TOML; lists of tables inline."""
    sections = (
        "\n".join([f"[{section}]", *(f"{key} = {value_text(value)}" for key, value in values.items())])
        for section, values in document.items()
    )
    return "\n\n".join(sections) + "\n"


def value_text(value: Any) -> str:
    """A plain value as TOML; tables inline."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {value_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(value_text, value)) + "]"
    return json.dumps(value)  # strings, numbers and booleans are written alike in JSON and TOML
