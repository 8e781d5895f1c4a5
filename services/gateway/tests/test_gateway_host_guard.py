"""Which names the gateway answers to."""

import asyncio
import json
import socket

import httpx
import pytest

from foliot.settings import SettingsError
from foliot_gateway import service
from foliot_gateway.http import host_guard
from foliot_gateway.settings import GatewaySettings
from patience import patience

ANSWERED, REFUSED = 200, 421


@pytest.fixture
async def named(store, one_each):
    """HTTP to a gateway whose settings have one name."""
    listener = socket.create_server(("127.0.0.1", 0))
    names = host_guard.named(GatewaySettings(hosts=("Foliot.Example.",)), "http://spans.example:8470")
    serving = asyncio.ensure_future(service.serve(store, [listener], names=names))
    base_url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    async with httpx.AsyncClient(base_url=base_url, timeout=patience(30), trust_env=False, limits=one_each) as client:
        yield client
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


async def status(client, host):
    """What somebody gets who asks by this name."""
    return (await client.get("/api/v1/fleet", headers={"Host": host})).status_code


@pytest.mark.parametrize(
    "host",
    [
        "localhost", "localhost:8470", "LOCALHOST.", "foliot.localhost:80", "gateway:8470", "bus", "127.0.0.1:18470",
        "10.0.0.7", "[::1]:8470", "[fe80::1]", "[::ffff:10.0.0.7]", "",
    ],
)  # fmt: skip
async def test_addresses_and_names_without_a_dot_need_no_setting(client, host):
    """Published ports, tunnels, and the names of compose and Kubernetes."""
    assert await status(client, host) == ANSWERED


@pytest.mark.parametrize(
    "host",
    [
        "evil.example", "evil.example:8470", "127.0.0.1.evil.example", "localhost.evil.example",
        "localhost@evil.example", "[evil.example]:80", ":8470", "foliot.example.evil.example", "a:b.c:8470",
        "evil.example" * 30,
    ],
)  # fmt: skip
async def test_another_sites_name_is_refused(named, host):
    """However it looks."""
    assert await status(named, host) == REFUSED


@pytest.mark.parametrize("path", ["/", "/assets/x.js", "/api/v1/stream", "/metrics", "/healthz", "/schema", "/nothing"])
async def test_nothing_is_told_to_another_sites_page(client, path):
    """Not even what there is; but whoever asked on purpose reads which setting to change."""
    async with client.stream("GET", path, headers={"Host": "evil.example:8470"}) as answer:
        assert answer.status_code == REFUSED  # a stream that is not refused has no end
        told = json.loads(await answer.aread())

    assert told["reason"] == "not-my-name"
    assert "'evil.example'" in told["detail"]
    assert "gateway.hosts" in told["detail"]


async def test_another_sites_page_sends_no_spans(client, store):
    """What it sends is not even read."""
    body = b'{"resourceSpans":[{"scopeSpans":[{"spans":[{}]}]}]}'
    types = {"Content-Type": "application/json"}
    answer = await client.post("/v1/traces", content=body, headers={**types, "Host": "evil.example"})

    assert (answer.status_code, store.spans_refused) == (REFUSED, 0)
    assert (await client.post("/v1/traces", content=body, headers=types)).status_code == ANSWERED
    assert store.spans_refused == 1


async def test_who_names_no_host_is_no_browser(client):
    """Health checks of load balancers speak HTTP/1.0."""
    reader, writer = await asyncio.open_connection(client.base_url.host, client.base_url.port)
    writer.write(b"GET /api/v1/fleet HTTP/1.0\r\n\r\n")
    assert b" 200 " in await reader.readline()
    writer.close()


async def test_names_of_the_settings_are_answered_to(named):
    """In whatever case, with any port."""
    assert await status(named, "foliot.example:443") == ANSWERED
    assert await status(named, "FOLIOT.EXAMPLE") == ANSWERED
    assert await status(named, "spans.example:8470") == ANSWERED


async def test_the_hosts_own_names_are_answered_to(client, monkeypatch):
    """Its whole name, as soon as DNS knows it."""
    monkeypatch.setattr(socket, "gethostname", lambda: "gw")
    monkeypatch.setattr(socket, "getfqdn", lambda: "gw")
    assert await status(client, "gw.cluster.example") == REFUSED
    monkeypatch.setattr(socket, "getfqdn", lambda: "gw.cluster.example")
    assert await status(client, "gw.cluster.example:8470") == ANSWERED
    monkeypatch.setattr(socket, "gethostname", lambda: "gw.new.example")
    assert await status(client, "gw.new.example") == ANSWERED
    assert await status(client, "other.cluster.example") == REFUSED


def test_where_it_listens_and_where_spans_go_are_names_of_the_settings():
    """Whoever wrote them there need not write them twice."""
    settings = GatewaySettings(host="a.example", bind=("b.example:1", "[::1]:2"), hosts=("c.example",))

    assert {"a.example", "b.example", "c.example", "d.example"} <= host_guard.named(
        settings, "https://d.example:4318/x"
    )
    assert {"a.example", "b.example", "c.example"} <= host_guard.named(settings, "http://[")


async def test_any_name_may_be_permitted(store):
    """Where something before the gateway sees to it."""
    asked = []

    async def app(scope, receive, send):
        asked.append(scope)

    guard = host_guard.HostGuard(app, host_guard.named(GatewaySettings(hosts=("*",)), ""))
    await guard({"type": "http", "headers": [(b"host", b"evil.example")]}, None, None)
    assert len(asked) == 1


@pytest.mark.parametrize(
    "entry", ["", "foliot.example:443", "https://foliot.example", "*.example", "a b", "a..b", "::1"]
)
def test_what_is_no_name_stops_the_start_and_names_the_key(entry):
    """So that a typing error is found in the file, not in the browser."""
    with pytest.raises(SettingsError, match=r"gateway\.hosts: expected a name without port"):
        host_guard.named(GatewaySettings(hosts=(entry,)), "")
