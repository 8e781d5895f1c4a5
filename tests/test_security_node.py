"""A node's own credentials suffice to take its place and to leave it, and for no more."""

from __future__ import annotations

import pytest

from foliot.bus.one_shot import OneShot
from foliot.node.identity_claims import check, claim
from foliot.settings import NicSettings, NodeSettings
from foliot_agent.install import leave
from foliot_schemas import Lease, NodeHomes, NodePaths
from foliot_schemas.subjects import CLAIMS, HOMES, LEASES, PATHS

pytestmark = pytest.mark.nats


async def test_a_node_claims_and_leaves_with_its_own_credentials(secured, capsys):
    """What other services wrote for it is left to an administrator, and said."""
    remediator = await secured.bus("remediator")
    await remediator.put(PATHS, "node3", NodePaths(node="node3", lease_revision=1))
    await remediator.put(HOMES, "node3", NodeHomes(node="node3", lease_revision=1))
    await remediator.put(LEASES, "remediator", Lease(holder="remediator@host"))
    nics = (NicSettings(rail="rail0", number=0, device="eth2", address="10.0.0.4"),)
    node = NodeSettings(name="node3", index=3, nics=nics)
    await claim(await secured.bus("agent", "node3"), node, "host3")
    await check(await secured.bus("probe", "node3"), node, "host3")

    assert await leave.forget(secured.settings_for("agent", "node3"), "node3", whoever=True, dry=False) == 1
    said = capsys.readouterr().out
    assert "remove claims/index-3 from the bus" in said
    assert "with credentials of an administrator: foliot node leave --name node3" in said
    assert await leave.forget(secured.settings_for("admin"), "node3", whoever=True, dry=False) == 0
    assert "remove paths/node3 from the bus" in capsys.readouterr().out
    async with OneShot(secured.settings_for("reader")) as visit:
        assert await visit.present(CLAIMS) == await visit.present(PATHS) == await visit.present(HOMES) == {}
