"""The bus of compose.yaml: TLS and credentials of one's own, made at the first start, and nobody's else."""

from __future__ import annotations

import json

import pytest
from compose_fleet import NODES

pytestmark = pytest.mark.containers

SERVICES = ("sync", "detector", "remediator", "gateway")

CONNECT = """
import asyncio, json, ssl, sys
import nats

async def main():
    said = []
    async def note(error): said.append(str(error))
    options = {"servers": ["tls://nats:4222"], "tls": ssl.create_default_context(cafile="/keys/ca.pem"), \
"error_cb": note}
    try:
        client = await nats.connect(**options, **ARGUMENTS, allow_reconnect=False, connect_timeout=5)
    except Exception as error:
        print(json.dumps({"in": False, "said": [str(error), *said]}))
        return
    WORK
    await client.close()
    print(json.dumps({"in": True, "said": said}))

asyncio.run(main())
"""

PLAIN = """
import json, socket
with socket.create_connection(("nats", 4222), timeout=10) as wire:
    told = wire.makefile("rb").readline()
    wire.sendall(b'CONNECT {"verbose": true}\\r\\nPING\\r\\n')
    answer = b""
    try:
        while part := wire.recv(4096):
            answer += part
    except ConnectionError:
        pass
print(json.dumps({"demands": json.loads(told.removeprefix(b"INFO "))["tls_required"], \
"answer": answer.decode("latin-1")}))
"""


def ran(fleet, service, program):
    """What a program says that runs in a service's container, as that service."""
    return json.loads(fleet.execute(service, "python", "-c", program))


def connected(fleet, service, arguments, work="pass"):
    """Whether NATS let a client in, and what it said to it."""
    return ran(fleet, service, CONNECT.replace("ARGUMENTS", arguments).replace("WORK", work))


def files(fleet, service):
    """The files below /keys, as far as the container's own user can see them; with a plus those that it can read."""
    shown = fleet.execute(
        service,
        "sh",
        "-c",
        'find /keys -type f | sort | while read -r file; do test -r "$file" && printf +; echo "$file"; done',
    )
    return set(shown.split())


def test_nobody_gets_in_without_credentials(fleet):
    """Also from the frontend network, and knowing the authority."""
    answer = connected(fleet, "sync", "{}")
    assert not answer["in"]
    assert any("authorization" in said.lower() for said in answer["said"])


def test_nobody_talks_in_the_clear(fleet):
    """The server says that it demands TLS, and answers nothing without it: neither OK nor PONG."""
    answer = ran(fleet, "sync", PLAIN)
    assert answer["demands"] is True
    assert "PONG" not in answer["answer"]
    assert "+OK" not in answer["answer"]


@pytest.mark.parametrize(("process", "subject"), [("agent", "outcome.reroute"), ("probe", "observation.port")])
def test_a_node_cannot_speak_as_another(fleet, process, subject):
    """Its own credentials let it in, and ask what it may ask; what it says in another's name nobody hears."""
    credentials = f'{{"user_credentials": "/keys/{process}.creds", "inbox_prefix": "_INBOX.{process}.node3"}}'
    work = (
        f'await client.publish("foliot.v1.{subject}.node4", b""); '
        'answer = await client.request("$JS.API.INFO", b"", timeout=10); '
        'said.append("streams" if b"streams" in answer.data else "nothing")'
    )
    answer = connected(fleet, f"node3-{process}", credentials, work)
    assert answer["in"]
    violations = [said for said in answer["said"] if "permissions violation" in said.lower()]
    assert len(violations) == 1
    assert f"foliot.v1.{subject}.node4" in violations[0]
    assert "streams" in answer["said"]


def test_each_finds_its_own_keys_and_nobody_elses(fleet):
    """Each container has the directory made for it, cannot write to it, and reads what its own process needs."""
    for service in SERVICES:
        own = {f"+/keys/{service}.creds", "+/keys/ca.pem"}
        assert files(fleet, service) == own | ({"+/keys/reader.creds"} if service == "gateway" else set()), service
    names = ("agent.creds", "probe.creds", "fleet.key", "ca.pem")
    assert files(fleet, "node3-agent") == {f"+/keys/{name}" for name in names}
    assert files(fleet, "node3-probe") == {
        "+/keys/probe.creds",
        "+/keys/ca.pem",
        "/keys/agent.creds",
        "/keys/fleet.key",
    }
    names = ("nats.conf", "server.conf", "server.pem", "server-key.pem")
    assert files(fleet, "nats") == {f"+/keys/server/{name}" for name in names}


def test_no_two_places_share_a_directory_of_keys(fleet):
    """Only agent and probe of the same node do; what signs is where `keys` is, which has no network and has ended."""
    seen = {
        service: {
            (mount["Name"].partition("_")[2], mount["RW"])
            for mount in container["Mounts"]
            if "/keys" in mount["Destination"]
        }
        for service, container in fleet.inspect().items()
    }
    made = seen.pop("keys")
    expected = {"nats": {("keys-nats", False)}} | {service: {(f"keys-{service}", False)} for service in SERVICES}
    for node in NODES:
        expected |= {
            node: set(),
            f"{node}-agent": {(f"keys-{node}", False)},
            f"{node}-probe": {(f"keys-{node}", False)},
        }

    assert seen == expected
    assert made == {("keys", True), *((name, True) for places in expected.values() for name, _ in places)}
    keys = fleet.inspect()["keys"]
    assert keys["HostConfig"]["NetworkMode"] == "none"
    assert (keys["State"]["Status"], keys["State"]["ExitCode"]) == ("exited", 0)


def test_an_operator_may_listen(fleet):
    """From inside the gateway's container, with a reader's credentials: every node's record is there."""
    told = fleet.execute("gateway", "foliot", "watch", "inventory", "--no-follow", "--json").splitlines()
    assert {json.loads(line)["message"]["name"] for line in told} == set(NODES)


def test_keys_are_made_once(fleet):
    """A second start finds them, makes nothing, and disturbs nobody."""
    before, started = fleet.keys("list"), fleet.inspect()["nats"]["State"]["StartedAt"]
    fleet.keys()
    assert fleet.keys("list") == before
    assert len(before.splitlines()) == 4 + 2 + 2 * len(NODES)
    assert fleet.inspect()["nats"]["State"]["StartedAt"] == started


def test_a_revoked_node_is_sent_away_until_it_has_new_credentials(fleet):
    """When NATS has read its configuration again; a node that is sent away restarts until it is let in."""
    agent = "node6-agent"
    credentials = '{"user_credentials": "/keys/agent.creds", "inbox_prefix": "_INBOX.agent.node6"}'
    assert connected(fleet, agent, credentials)["in"]
    fleet.keys("revoke", "node6")
    fleet.execute("nats", "nats-server", "--signal", "reload=1")
    fleet.until(lambda: fleet.inspect()[agent]["RestartCount"] > 0, "the agent was sent away")
    fleet.keys()
    assert all("revoked" in line for line in fleet.keys("list").splitlines() if "node6" in line)

    fleet.keys("node", "node6")
    fleet.compose("up", "--detach", "--no-build", "--wait", agent, "node6-probe")
    assert connected(fleet, agent, credentials)["in"]
