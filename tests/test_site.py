"""The documentation site: what is made from the code names all of it, and no page fetches anything from elsewhere."""

from __future__ import annotations

import argparse
import ast
import importlib.util
import json
import re
import shutil
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec
import pytest
from playwright.async_api import async_playwright, expect

import pages
import reference
from foliot import cli
from foliot.settings import SECTIONS
from foliot_gateway.rpc.descriptors import FILES
from foliot_schemas.subjects import CHANNELS
from patience import patience

ROOT = Path(__file__).parents[1]
_OF_THE_LAB = {"lab"}
"""Sections that only the lab writes, for itself."""
_PAGE = "architecture"
"""One that has pictures."""


def keys_of_settings():
    """Every field of every class of settings in sdk and services, as the source has them."""
    sources = [*ROOT.glob("sdk/foliot/**/*.py"), *ROOT.glob("services/*/foliot_*/**/*.py")]
    classes = [node for path in sources for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)]
    settings = [each for each in classes if each.name.endswith("Settings")]
    fields = (field for each in settings for field in each.body if isinstance(field, ast.AnnAssign))
    return {field.target.id for field in fields if not ast.unparse(field.annotation).startswith("ClassVar")}


def subcommands(parser, name="foliot"):
    """All subcommands by their full names."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, below in action.choices.items():
                yield f"{name} {word}"
                yield from subcommands(below, f"{name} {word}")


def test_every_section_of_the_settings_has_a_table():
    """But that of the lab, which nobody else writes."""
    assert set(reference.SECTIONS) == SECTIONS - _OF_THE_LAB


def test_every_key_that_the_source_has_is_in_a_table():
    """Also one of a class that no section has been given yet."""
    shown = set(re.findall(r"^\| `(\w+)` \|", reference.settings(), re.MULTILINE))
    keys = keys_of_settings()

    assert {"flap_rule", "in_use_hz", "modules", "rail"} <= keys
    assert keys <= shown


@pytest.mark.parametrize("section", reference.SECTIONS)
def test_every_key_of_a_section_is_in_its_table(section):
    """With its default, where it has one."""
    table = reference.settings().partition(f"## [{section}]\n")[2].partition("\n## ")[0]

    for field in msgspec.structs.fields(reference.SECTIONS[section]):
        (row,) = re.findall(rf"^\| `{field.name}` \|.*$", table.partition("\n### ")[0], re.MULTILINE)
        if isinstance(field.default, int | float | str | bool):
            assert f"| `{json.dumps(field.default)}` |" in row


def test_every_subcommand_has_its_help():
    """Those of other distributions as well."""
    text = reference.commands()
    wanted = list(subcommands(cli.parser()))

    assert {"foliot trace", "foliot lab run", "foliot node join"} <= set(wanted)
    for name in wanted:
        assert re.search(rf"\n## {name}\n\n(.+\n\n)?```text\nusage: {name} ", text), name


def test_every_subject_and_bucket_of_the_contract_is_in_a_table():
    """By the AsyncAPI document, which other tests hold against the code."""
    document = json.loads((ROOT / "docs/asyncapi.json").read_text())
    text = reference.messages(document)

    for channel in document["channels"].values():
        assert f"| `{channel['address']}` |" in text
    for bucket in document["x-jetstream"]["buckets"]:
        assert f"| `{bucket['bucket']}` |" in text
    assert len(document["channels"]) >= len(CHANNELS)


def test_every_request_that_the_gateway_answers_is_described():
    """By its docstring and the table of its answers."""
    text = reference.http()

    for heading in ("GET /api/v1/fleet", "GET /api/v1/traces/{trace_id}", "POST /v1/traces", "GET /metrics"):
        _, _, body = text.partition(f"\n## {heading}\n\n")
        assert re.match(r"[A-Z0-9][^\n]+\n\n(\| parameter[^#]+)?\| status", body), heading


def test_every_method_and_field_of_the_grpc_interface_is_in_a_table():
    """With what its source says."""
    text = reference.grpc()

    for file in FILES:
        for service in file.service:
            table = text.partition(f"\n## {service.name}\n")[2].partition("\n## ")[0]
            assert {each.name for each in service.method} == set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE))
        for message in file.message_type:
            table = text.partition(f"\n### {message.name}\n")[2].partition("\n### ")[0]
            rows = re.findall(r"^\| `(\w+)` \| \d+ \| [^|]+ \| [^|]+ \|$", table, re.MULTILINE)
            assert {each.name for each in message.field} == set(rows)


def test_no_link_within_a_generated_page_leads_nowhere():
    """Types name one another."""
    document = json.loads((ROOT / "docs/asyncapi.json").read_text())
    for text in (reference.settings(), reference.messages(document), reference.http(), reference.grpc()):
        anchors = {each.lower() for each in re.findall(r"^#+ (\w+)$", text, re.MULTILINE)}
        assert set(re.findall(r"\]\(#([^)]+)\)", text)) <= anchors


def test_documents_keep_their_words_and_get_their_places_links(tmp_path):
    """A document, a file beside it, and what is on the web; examples of code stay as they are."""
    known = pages.documents()
    source = tmp_path / "some.md"
    readme, program = ROOT / "README.md", ROOT / "bench/plots.py"
    source.write_text(
        f"A [page]({ROOT}/docs/lab.md#the-demo), [itself](#here) and [NATS](https://nats.io).\n\n"
        f"- item\n  with [more]({program}) and [home]({readme})\n\n```sh\n  [x]({program})\n```\n"
    )

    text = pages._moved(source, Path("decisions/some.md"), known, tmp_path)

    assert text == (
        "A [page](../lab.md#the-demo), [itself](#here) and [NATS](https://nats.io).\n\n"
        "- item\n    with [more](../files/bench/plots.py.txt) and [home](../index.md)\n\n"
        f"```sh\n  [x]({program})\n```\n"
    )
    assert (tmp_path / "files/bench/plots.py.txt").read_text() == program.read_text()


@pytest.fixture
def site(tmp_path):
    """One page as `make docs` builds it, which builds all and bears no warning; the address of its folder."""
    if importlib.util.find_spec("mkdocs") is None or not pages.MERMAID.exists():
        pytest.skip("mkdocs or mermaid is not installed: run make docs.")
    pages.lay_out(tmp_path / "docs")
    settings, _, _ = (ROOT / "mkdocs.yml").read_text().partition("validation:\n")  # and the list of all pages
    settings = settings.replace("run/docs", str(tmp_path / "docs")).replace("run/site", str(tmp_path / "site"))
    (tmp_path / "mkdocs.yml").write_text(f"{settings}exclude_docs: |\n  *.md\n  !/{_PAGE}.md\n")
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "-f", tmp_path / "mkdocs.yml"],
        check=True, capture_output=True, env={"NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path / "site"))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class Quiet(SimpleHTTPRequestHandler):
    """Serves files and logs nothing."""

    def log_message(self, *_):
        """Nobody reads it."""


@pytest.mark.browser
async def test_a_page_draws_its_pictures_and_asks_no_other_server(site):
    """With mermaid of its own, and fonts of the reader's machine."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome-stable"))), None)
    if chromium is None:
        pytest.skip("There is no Chromium: install it (Debian's package is called chromium).")
    expect.set_options(timeout=1_000 * patience(30))
    asked = []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium)
        page = await browser.new_page()
        page.on("request", lambda request: asked.append(request.url))
        await page.goto(f"{site}/{_PAGE}.html")
        services = ("probe", "agent", "sync", "detector", "remediator", "gateway")
        await expect(page.locator("div.mermaid")).to_have_count(len(services))  # a <pre> until it is drawn
        await browser.close()
    assert f"{site}/assets/mermaid.js" in asked
    assert [url for url in asked if not url.startswith((site, "data:", "blob:"))] == []
