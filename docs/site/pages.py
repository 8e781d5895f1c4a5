"""Lays out the pages of the documentation site: the documents of the repository, and the reference pages.

    python docs/site/pages.py run/docs

The documents stay as GitHub shows them. Here their links get the places that the pages have in the site. Files outside
of `docs/` that a document links to are laid beside the pages.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path
from typing import Final

import reference

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
TOP: Final = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "ROADMAP.md": "roadmap.md",
}
"""Documents at the top of the repository, and their places in the site."""
MERMAID = ROOT / "services/gateway/web/node_modules/@mermaid-js/tiny/dist/mermaid.tiny.js"
"""Draws the pictures in the reader's browser. npm installs it, so that nobody has to fetch it to read."""
STYLE = Path(__file__).with_name("style.css")

_FENCE = re.compile(r"^ *(```|~~~)")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_INDENT = re.compile(r"^ {2,3}(?=\S)")
_SHOWN = {".json", ".png", ".svg"}
"""Files that a browser shows by themselves. Others get the ending of a text."""


def documents() -> dict[Path, Path]:
    """Every document, and its place in the site."""
    found = {ROOT / name: Path(place) for name, place in TOP.items() if (ROOT / name).exists()}
    return found | {path: path.relative_to(DOCS) for path in sorted(DOCS.rglob("*.md"))}


def lay_out(target: Path) -> None:
    """Fills a folder anew with all that mkdocs reads.

    Raises:
        FileNotFoundError: a link leads to nothing, or npm has not installed mermaid.
    """
    shutil.rmtree(target, ignore_errors=True)
    known = documents()
    for path, place in known.items():
        _write(target / place, _moved(path, place, known, target))
    shutil.copytree(DOCS / "pictures", target / "pictures", dirs_exist_ok=True)
    shutil.copy(DOCS / "asyncapi.json", target)
    reference.write(target / "reference", DOCS / "asyncapi.json")
    _copy(MERMAID, target / "assets" / "mermaid.js")
    _copy(STYLE, target / "assets" / "style.css")


def _moved(path: Path, place: Path, known: dict[Path, Path], target: Path) -> str:
    """The text of a document with the links that it needs at its place."""

    def link(match: re.Match[str]) -> str:
        to, hash_, anchor = match[1].partition("#")
        if "://" in to or not to:
            return match[0]
        there = (path.parent / to).resolve()
        goal = known.get(there) or _beside(there, target)
        return f"]({os.path.relpath(goal, place.parent)}{hash_}{anchor})"

    lines, in_code = [], False
    for line in path.read_text().splitlines():
        if _FENCE.match(line):
            in_code = not in_code
            lines.append(line)
        else:
            # Python-Markdown wants four spaces where GitHub takes two or three.
            lines.append(line if in_code else _INDENT.sub("    ", _LINK.sub(link, line)))
    return "\n".join(lines) + "\n"


def _beside(path: Path, target: Path) -> Path:
    """The place of a file that is no document."""
    if path.is_relative_to(DOCS) and path.suffix in _SHOWN:
        return path.relative_to(DOCS)
    place = Path("files") / path.relative_to(ROOT)
    if path.suffix not in _SHOWN:
        place = place.with_name(f"{place.name}.txt")
    _copy(path, target / place)
    return place


def _copy(path: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, to)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


if __name__ == "__main__":
    lay_out(Path(sys.argv[1]))
