"""Who gets in: credentials, their end, and TLS, on a real server."""

from __future__ import annotations

import asyncio
import ssl
import sys

import msgspec
import nats
import nats.errors
import pytest

from foliot.bus import connection
from foliot.bus.connection import BusClosedError
from foliot.runtime.service import EX_UNAVAILABLE
from foliot.settings import SettingsError
from patience import patience

pytestmark = pytest.mark.nats


async def attempt(settings, name="detector"):
    """One connection, closed at once."""
    client = nats.NATS()
    try:
        await client.connect(**connection.options(settings, name), allow_reconnect=False, connect_timeout=patience(20))
    except Exception:
        if client._transport is not None:
            client._transport.close()  # nats-py leaves it open when a handshake fails
        raise
    await client.close()


async def test_nobody_gets_in_without_credentials(secured):
    """Nor with those of another fleet."""
    with pytest.raises(nats.errors.Error, match=r"[Aa]uthorization"):
        await attempt(secured.settings_for(""))


async def test_credentials_of_another_fleet_are_worth_nothing(secured, tmp_path):
    """Whoever makes keys of their own is no operator of this server."""
    foreign = type(secured)(tmp_path / "foreign")
    with pytest.raises(nats.errors.Error, match=r"[Aa]uthorization"):
        await attempt(msgspec.structs.replace(foreign.settings_for("detector"), url=secured.settings_for("").url))


async def test_credentials_end(secured):
    """Made for a day, tried the day after."""
    keyring = secured.keyring
    keyring._now_s, now_s = (lambda: keyring_now - 86_401), keyring._now_s
    keyring_now = now_s()
    keyring.issue("reader", "yesterday", days=1)
    keyring.issue("reader", "the-day-before-tomorrow", days=3)

    await attempt(secured.settings_for("reader", "the-day-before-tomorrow"))
    with pytest.raises(nats.errors.Error, match=r"[Aa]uthorization"):
        await attempt(secured.settings_for("reader", "yesterday"))


async def test_a_revoked_node_is_sent_away_and_stays_out_and_the_others_stay(secured):
    """At once, when the server has read its configuration again; new credentials of the same name hold."""
    await secured.bus("detector")
    node, other = await secured.bus("agent", "node3"), await secured.bus("agent", "node4")
    secured.keyring.revoke("node3")
    secured.reload()
    with pytest.raises(BusClosedError):
        await asyncio.wait_for(node.closed(), patience(20))

    with pytest.raises(nats.errors.Error, match=r"[Aa]uthorization"):
        await attempt(secured.settings_for("agent", "node3"), "agent")
    assert other.connected
    secured.keyring.issue_node("node3")
    await attempt(secured.settings_for("agent", "node3"), "agent")


async def test_a_service_that_is_sent_away_ends_and_says_why(secured):
    """Whoever keeps it running starts it anew; nats-py would never come back by itself."""
    settings = secured.settings_for("detector")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "foliot_detector", stderr=asyncio.subprocess.PIPE,
        env={"FOLIOT_BUS__URL": settings.url, "FOLIOT_BUS__CREDENTIALS": settings.credentials,
             "FOLIOT_TELEMETRY__ENDPOINT": ""},
    )  # fmt: skip
    said = b""
    async with asyncio.timeout(patience(30)):
        while b"detector_started" not in said:
            said += await process.stderr.readline()
    secured.keyring.revoke("detector")
    secured.reload()
    _, rest = await asyncio.wait_for(process.communicate(), patience(20))

    assert process.returncode == EX_UNAVAILABLE
    assert b"the bus closed the connection" in rest


async def test_what_the_bus_forbids_is_said(secured, until, capsys):
    """A request that is not permitted only times out: the log says why."""
    await secured.bus("remediator")
    node = await secured.bus("agent", "node3")
    await node._client.publish("foliot.v1.command.reroute.node4", b"")
    await node._client.flush()
    said = []
    await until(lambda: said.append(capsys.readouterr().out) or "bus_forbade" in "".join(said))
    assert "foliot.v1.command.reroute.node4" in "".join(said)


async def test_with_tls_both_know_each_other(encrypted):
    """The server by its certificate, the client by its credentials."""
    await encrypted.bus("detector")
    agent = await encrypted.bus("agent", "node3")
    assert agent.connected


async def test_without_tls_there_is_no_talk_with_a_server_that_has_it(encrypted):
    """Credentials are never sent in the clear, nor is anything else."""
    settings = encrypted.settings_for("detector")
    plain = msgspec.structs.replace(settings, url=settings.url.replace("tls:", "nats:"), ca="")
    with pytest.raises((nats.errors.Error, OSError, ssl.SSLError)):
        await attempt(plain)


async def test_a_server_that_nobody_vouches_for_is_not_talked_to(encrypted, tmp_path):
    """Neither by the system's authorities nor by another fleet's."""
    foreign = type(encrypted)(tmp_path / "foreign", ("127.0.0.1",))
    settings = encrypted.settings_for("detector")
    for ca in ("", foreign.settings_for("detector").ca):
        with pytest.raises(ssl.SSLCertVerificationError):
            await attempt(msgspec.structs.replace(settings, ca=ca))


def test_a_path_that_cannot_even_be_looked_at_is_named(bus_free_settings):
    """As one in a folder that may not be entered."""
    settings = msgspec.structs.replace(bus_free_settings, credentials="x" * 300)
    with pytest.raises(SettingsError, match=r"bus\.credentials: x+: File name too long"):
        connection.options(settings, "detector")


@pytest.mark.parametrize(
    ("field", "content", "said"),
    [
        ("credentials", None, "No such file"),
        ("credentials", "", "holds no NATS user JWT"),
        ("credentials", "\xff", "can't decode byte 0xff"),
        ("credentials", "-----BEGIN NATS USER JWT-----\na.e30.c\n------END NATS USER JWT------\n", "no tag role"),
        ("ca", None, "No such file"),
        ("ca", "nonsense", "ca"),
    ],
)
def test_a_file_that_is_not_what_it_should_be_is_named(tmp_path, bus_free_settings, field, content, said):
    """A wrong setting stops the start, with its name and the reason."""
    path = tmp_path / "file"
    if content is not None:
        path.write_text(content, "latin-1")
    with pytest.raises(SettingsError, match=said) as caught:
        connection.options(msgspec.structs.replace(bus_free_settings, **{field: str(path)}), "detector")
    assert f"bus.{field}" in str(caught.value)
