"""The documents as text: links lead somewhere, and the README stays short."""

import re
from pathlib import Path

import pytest

from bench.__main__ import benches

ROOT = Path(__file__).parents[1]
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
_FENCED = re.compile(r"^(```|~~~).*?^\1\s*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
_BENCH = re.compile(r"make bench\s+NAME=([\w.-]+)")
_LINES = 100
"""Of the README at most: a newcomer reads it within a minute or two."""


def anchors(document):
    """The names by which a browser finds its headings, made as GitHub makes them."""
    titles = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", each) for each in _HEADING.findall(text_of(document)))
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in titles}


def text_of(document):
    """Without its examples of code, in which # begins a comment."""
    return _FENCED.sub("", document.read_text())


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document):
    """To a file that is there, and a heading that it has."""
    lost = []
    for link in _LINK.findall(text_of(document)):
        path, _, anchor = link.partition("#")
        if "://" in link:
            continue
        target = (document.parent / path).resolve() if path else document
        if not target.exists() or (anchor and anchor not in anchors(target)):
            lost.append(link)
    assert lost == []


def test_the_readme_is_short():
    """Whatever is longer belongs on a page of docs/."""
    assert len((ROOT / "README.md").read_text().splitlines()) <= _LINES


def test_each_bench_that_a_document_names_is_there():
    """By the name with which the document starts it."""
    named = {name for document in DOCUMENTS for name in _BENCH.findall(document.read_text())}
    assert named - set(benches()) == set()
