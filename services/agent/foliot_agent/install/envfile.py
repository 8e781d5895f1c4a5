"""``/etc/foliot/agent.env``: variables that systemd hands to the agent. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

PATH = "etc/foliot/agent.env"
KEY, KEY_FILE, ARMED = "FOLIOT_AGENT__KEY", "FOLIOT_AGENT__KEY_FILE", "FOLIOT_AGENT__ARMED"


def value(text: str, name: str) -> str | None:
    """The value of a variable, without quotes, see systemd.exec(5); None: it is not set."""
    values = [line.partition("=")[2].strip().strip("'\"") for line in text.splitlines() if _name(line) == name]
    return values[-1] if values else None


def with_values(text: str, values: Mapping[str, str]) -> str:
    """The text with these variables set, each where it was. All other lines stay, comments and all."""
    left, lines = dict(values), []
    for line in text.splitlines():
        name = _name(line)
        if name in left:
            lines.append(f"{name}={left.pop(name)}")
        elif name not in values:
            lines.append(line)
    return "".join(f"{line}\n" for line in (*lines, *(f"{name}={value}" for name, value in left.items())))


def _name(line: str) -> str:
    """The name of the variable that a line sets; empty: it sets none."""
    return "" if line.lstrip().startswith(("#", ";")) else line.partition("=")[0].strip()
