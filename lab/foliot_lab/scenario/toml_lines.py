"""The line number of each key in a TOML text, which Python's parser does not give."""

from __future__ import annotations

import re
import tomllib
from typing import Any

Place = tuple[str | int, ...]
"""Keys, and positions in arrays of tables, from the top: ("fault", 0, "kind")."""

_HEADER = re.compile(r"\s*(?P<open>\[{1,2})(?P<name>[^\[\]]+)\]{1,2}\s*(?:#.*)?")
_KEY = re.compile(r"""\s*(?P<key>(?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=(?P<value>.*)""")


def lines_of(text: str) -> dict[Place, int]:
    """The line, counted from 1, of every table header and every key of a text that `tomllib` has accepted.

    Keys inside inline tables have none of their own; `line_of` then gives the line of what encloses them.
    """
    found: dict[Place, int] = {}
    tables: dict[Place, int] = {}
    table: Place = ()
    unfinished = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if unfinished:
            unfinished = _rest(f"{unfinished}\n{line}")
        elif header := _HEADER.fullmatch(line):
            table = _within(_parts(header["name"]), tables)
            if header["open"] == "[[":
                position = tables[table] = tables.get(table, -1) + 1
                table = (*table, position)
            found.setdefault(table, number)
        elif key := _KEY.fullmatch(line):
            found.setdefault((*table, *_parts(key["key"])), number)
            unfinished = _rest(f"value ={key['value']}")
    return found


def _within(table: Place, arrays: dict[Place, int]) -> Place:
    """The place of a table inside the last one of an array of tables, as in TOML: [fault.expect] after [[fault]]."""
    found: Place = ()
    for number, key in enumerate(table):
        found = (*found, key)
        if number < len(table) - 1 and found in arrays:
            found = (*found, arrays[found])
    return found


def line_of(lines: dict[Place, int], place: Place) -> int:
    """The line of a place, or of the nearest thing that encloses it; 1 for the whole text."""
    while place and place not in lines:
        place = place[:-1]
    return lines.get(place, 1)


def _parts(dotted: str) -> Place:
    """The keys of a dotted key, quoted or bare."""
    table: Any = tomllib.loads(f"{dotted} = 0")
    keys: list[str] = []
    while isinstance(table, dict):
        key, table = next(iter(table.items()))
        keys.append(key)
    return tuple(keys)


def _rest(assignment: str) -> str:
    """The assignment again if it goes on in the next line, as a long string or an open array does."""
    try:
        tomllib.loads(assignment)
    except tomllib.TOMLDecodeError:
        return assignment
    return ""
