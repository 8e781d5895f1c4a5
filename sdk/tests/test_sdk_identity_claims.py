"""No two nodes with one index or one address."""

from __future__ import annotations

import nats.errors
import pytest

from foliot.bus.client import Bus
from foliot.bus.one_shot import OneShot
from foliot.node.identity_claims import ClaimError, check, claim, host_id, renew
from foliot.settings import NicSettings, NodeSettings
from foliot_schemas.subjects import CLAIMS
from patience import patience

pytestmark = pytest.mark.nats


def node(name: str, index: int, address: str) -> NodeSettings:
    """A node of one NIC."""
    return NodeSettings(
        name=name, index=index, nics=(NicSettings(rail="rail0", number=0, device="eth0", address=address),)
    )


@pytest.fixture
async def bus(bus_settings):
    """Connected, and node a has index 0 and an address."""
    made = await Bus.connect(bus_settings, "test")
    await claim(made, node("a", 0, "10.0.0.1"), "host-a")
    yield made
    await made.close()


async def test_what_a_node_has_it_may_claim_again(bus):
    """A restart finds its own claims."""
    await claim(bus, node("a", 0, "10.0.0.1"), "host-a")
    await check(bus, node("a", 0, "10.0.0.1"), "host-a")


@pytest.mark.parametrize(
    ("other", "host", "said"),
    [
        (node("b", 0, "10.0.0.2"), "host-b", "index 0 is taken by node 'a'"),
        (node("b", 1, "10.0.0.1"), "host-b", r"address 10\.0\.0\.1 of rail0 is taken by node 'a'"),
        (node("a", 5, "10.0.0.5"), "host-b", "name a is taken by another host that is called 'a' too"),
    ],
)
async def test_what_another_has_is_refused_with_what_to_do(bus, bus_settings, other, host, said):
    """By claim and by check, and nothing is claimed on the way."""
    for asked in (claim, check):
        with pytest.raises(ClaimError, match=said + ".*foliot node leave --name a"):
            await asked(bus, other, host)
    async with OneShot(bus_settings, patience(20)) as visit:
        assert sorted(await visit.present(CLAIMS)) == ["address-10.0.0.1", "index-0", "node-a"]


@pytest.mark.parametrize("what", ["create", "delete"])
async def test_a_slow_bus_keeps_nothing_of_a_node_that_is_refused(bus, bus_settings, monkeypatch, what):
    """What it claimed on the way is given back, also where the bus said too late that it was done."""
    store, asked = await bus.store(CLAIMS), []
    really = getattr(store, what)

    async def slow(*given):
        asked.append(given)
        done = await really(*given)
        if len(asked) == 1:
            raise nats.errors.TimeoutError
        return done

    monkeypatch.setattr(store, what, slow)
    with pytest.raises(ClaimError, match="index 0 is taken by node 'a'"):
        await claim(bus, node("b", 0, "10.0.0.2"), "host-b")
    async with OneShot(bus_settings) as visit:
        assert sorted(await visit.present(CLAIMS)) == ["address-10.0.0.1", "index-0", "node-a"]


async def test_what_was_given_up_may_be_claimed(bus, bus_settings):
    """A deleted claim is as good as none."""
    async with OneShot(bus_settings, patience(20)) as visit:
        assert await visit.delete(CLAIMS, "index-0")
        assert not await visit.delete(CLAIMS, "index-0")
    await claim(bus, node("b", 0, "10.0.0.2"), "host-b")
    with pytest.raises(ClaimError, match="index 0 is taken by node 'b'"):
        await check(bus, node("a", 0, "10.0.0.1"), "host-a")


async def test_what_the_bus_forgot_is_claimed_again_and_the_rest_kept_from_others(bus, bus_settings):
    """Where another was quicker, the node keeps what is left, and says who has what.

    Nothing of the other's is touched.
    """
    a = node("a", 0, "10.0.0.1")
    assert await renew(bus, a, "host-a") == {}
    async with OneShot(bus_settings, patience(20)) as visit:
        for key in ("node-a", "index-0", "address-10.0.0.1"):
            await visit.delete(CLAIMS, key)
        await claim(bus, node("b", 0, "10.0.0.2"), "host-b")
        reasons = await renew(bus, a, "host-a")
        assert list(reasons) == ["index-0"]
        assert "index 0 is taken by node 'b'" in reasons["index-0"]
        claims = await visit.present(CLAIMS)
        assert {key: held.node for key, held in claims.items()} == {
            "node-a": "a", "address-10.0.0.1": "a", "index-0": "b", "node-b": "b", "address-10.0.0.2": "b"
        }  # fmt: skip
        await visit.delete(CLAIMS, "index-0")
    assert await renew(bus, a, "host-a") == {}
    await check(bus, a, "host-a")


async def test_a_host_that_cannot_be_told_from_others_is_taken_by_its_name(bus, bus_settings):
    """Containers often have no machine-id.

    One that has none may be any host of its name, now or when the claim was made, but no other node.
    """
    await claim(bus, node("a", 0, "10.0.0.1"), "")
    with pytest.raises(ClaimError, match="index 0 is taken by node 'a'"):
        await claim(bus, node("b", 0, "10.0.0.2"), "")
    async with OneShot(bus_settings, patience(20)) as visit:
        claims = await visit.present(CLAIMS)
        assert {held.host for held in claims.values()} == {"host-a"}, "what is known of the host is kept"
    await claim(bus, node("c", 2, "10.0.0.3"), "")
    await check(bus, node("c", 2, "10.0.0.3"), "host-c")
    with pytest.raises(ClaimError, match="name a is taken by another host"):
        await check(bus, node("a", 0, "10.0.0.1"), "host-b")


def test_the_machine_id_itself_is_not_shown(tmp_path, monkeypatch):
    """The same host has the same id, another another, and one without has none."""
    monkeypatch.delenv("FOLIOT_HOST_ID", raising=False)
    for name, text in (("one", "0123456789abcdef\n"), ("two", "fedcba9876543210\n"), ("none", "\n")):
        (tmp_path / name).write_text(text)
    one, two = host_id(tmp_path / "one"), host_id(tmp_path / "two")
    assert one == host_id(tmp_path / "one") != two
    assert "0123456789abcdef" not in one
    assert host_id(tmp_path / "none") == host_id(tmp_path / "away") == ""
