"""Figures of the documents: each file that they cite is there, and no file is there that nobody cites."""

import json
import re
from pathlib import Path

from bench.document import HEAD

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results"
PERFORMANCE = ROOT / "docs" / "performance.md"
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_CITED = re.compile(r"bench/results/([\w.-]+\.json)")
_WITHOUT_HEAD = "2026-11-22"
"""The last day of files that were written before benches said of what code and settings they are."""


def cited():
    """The names of files, by the document that cites them."""
    return {document.name: set(_CITED.findall(document.read_text())) for document in DOCUMENTS}


def test_every_file_of_figures_that_is_cited_is_there():
    """Figures without a file cannot be looked up."""
    gone = {name: sorted(each for each in files if not (RESULTS / each).exists()) for name, files in cited().items()}
    assert {name: files for name, files in gone.items() if files} == {}


def test_every_file_of_figures_is_cited():
    """What nobody cites nobody keeps true."""
    assert {path.name for path in RESULTS.iterdir()} - set().union(*cited().values()) == set()


def test_the_page_of_figures_names_the_commit_of_each_file():
    """The last cell of a row with a file: the commit of the code that ran, as the file has it."""
    said = {}
    for line in PERFORMANCE.read_text().splitlines():
        if line.startswith("|") and (found := _CITED.search(line)):
            said[found[1]] = line.strip("| ").rsplit("|", 1)[1].strip()
    assert said == {path.name: commit_of(json.loads(path.read_text())) for path in RESULTS.glob("*.json")}


def commit_of(document):
    """In seven characters; of a document of several runs, of each."""
    # One that joins others may have several.
    own = document.get("commit", [run["commit"] for run in document.get("runs", ())])
    commits = [own] if isinstance(own, str) else own
    return ", ".join(dict.fromkeys(each[:7] for each in commits)) or "not recorded"


def test_newer_files_of_figures_have_their_head():
    """And are of code that was committed; of older ones the date alone is known."""
    for path in RESULTS.glob("*.json"):
        document = json.loads(path.read_text())
        dates = document["date"]
        if (dates if isinstance(dates, str) else max(dates)) <= _WITHOUT_HEAD:
            continue
        assert [key for key in HEAD if key not in document] == [], path.name
        assert "+" not in str(document["commit"]), path.name
