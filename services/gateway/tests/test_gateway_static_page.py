"""The page's files as they are served."""

import pytest

from foliot_gateway.http import static_page


@pytest.fixture
def built(tmp_path, monkeypatch):
    """A page that was built."""
    monkeypatch.setattr(static_page, "_FOLDER", tmp_path / "static")
    assets = tmp_path / "static" / "assets"
    assets.mkdir(parents=True)
    (tmp_path / "static" / "index.html").write_text("<!doctype html><title>Foliot</title>")
    (assets / "index-1.js").write_text("export {};")
    (tmp_path / "secret.js").write_text("no")
    return tmp_path


async def test_the_page_is_served_and_may_load_nothing_of_others(client, built):
    """Asked for anew each time, under a policy that permits its own files and no inline code."""
    answer = await client.get("/")

    assert (answer.status_code, answer.text[:15]) == (200, "<!doctype html>")
    assert answer.headers["content-type"].startswith("text/html")
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert {policy[name] for name in ("script-src", "style-src", "connect-src")} == {"'self'"}
    assert policy["frame-ancestors"] == "'none'"
    assert (answer.headers["cache-control"], answer.headers["x-content-type-options"]) == ("no-cache", "nosniff")


async def test_its_parts_are_kept_by_the_browser(client, built):
    """Their names change with what they hold."""
    answer = await client.get("/assets/index-1.js")

    assert (answer.status_code, answer.text) == (200, "export {};")
    assert "javascript" in answer.headers["content-type"]
    assert "immutable" in answer.headers["cache-control"]


@pytest.mark.parametrize("name", ["nothing.js", "..%2Findex.html", "..%2F..%2Fsecret.js", "%2e%2e"])
async def test_nothing_but_its_parts_is_served(client, built, name):
    """Whatever a name tries."""
    answer = await client.get(f"/assets/{name}")

    assert answer.status_code == 404


async def test_where_it_was_not_built_the_gateway_says_what_to_run(client, built):
    """One plain page; and once it is built it is served, without a restart."""
    index = built / "static" / "index.html"
    text = index.read_text()
    index.unlink()
    before = await client.get("/")
    index.write_text(text)

    assert (before.status_code, "make page" in before.text) == (200, True)
    assert "default-src 'none'" in before.headers["content-security-policy"]
    assert (await client.get("/")).text == text
