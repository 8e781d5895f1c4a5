"""Claims a node's name, index and addresses: each is a key in the bucket `claims`, which only one node can make.

Every address that Foliot gives a node follows from its index. A second node with the same index would take the first
one's traffic, so a node touches nothing before its claims stand.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog
from nats.js.errors import KeyWrongLastSequenceError

from foliot.bus.retry import until_done
from foliot.settings import SettingsError
from foliot_schemas import Claim, encode
from foliot_schemas.claim import address_key, index_key, name_key
from foliot_schemas.names import escape
from foliot_schemas.subjects import CLAIMS

if TYPE_CHECKING:
    from foliot.bus.client import Bus
    from foliot.settings import NodeSettings

log = structlog.get_logger()

_MACHINE_ID = Path("/etc/machine-id")


class ClaimError(SettingsError):
    """Another node has what this one wants; the message says who, what, and what to do."""


def host_id(machine_id: Path = _MACHINE_ID) -> str:
    """An id of this host, derived from its machine-id, which itself must not be shown (machine-id(5)).

    ``FOLIOT_HOST_ID`` overrides it. Empty where there is neither.
    """
    if given := os.environ.get("FOLIOT_HOST_ID", ""):
        return given
    try:
        secret = machine_id.read_text().strip()
    except OSError:
        return ""
    return hmac.new(secret.encode(), b"foliot", hashlib.sha256).hexdigest()[:16] if secret else ""


def keys(node: NodeSettings) -> dict[str, str]:
    """The keys that a node claims, each with its meaning in words."""
    return {
        name_key(node.name): f"name {node.name}",
        index_key(node.index): f"index {node.index}",
        **{address_key(nic.address): f"address {nic.address} of {nic.rail}" for nic in node.nics},
    }


def objection(what: str, wanted: Claim, present: Claim) -> str:
    """The reason why a node may not have a claimed thing; empty: the claim is its own."""
    if present.node != wanted.node:
        return (
            f"{what} is taken by node {present.node!r}: give {wanted.node!r} another one in [node], "
            f"or, if {present.node!r} is gone for good, run `foliot node leave --name {present.node}`"
        )
    if present.host and wanted.host and present.host != wanted.host:
        return (
            f"{what} is taken by another host that is called {wanted.node!r} too: every host needs a name of its own "
            f"in [node], or, if that host is gone for good, run `foliot node leave --name {present.node}`"
        )
    return ""


async def claim(bus: Bus, node: NodeSettings, host: str) -> None:
    """Claims the node's name, index and addresses, unless it has them already. Waits for the bus.

    Raises:
        ClaimError: another node has one of them. Claims made in this call are given back.
    """
    own = Claim(node=node.name, host=host)
    store = await until_done(functools.partial(bus.store, CLAIMS), "claims_awaited")
    made: list[str] = []
    for key, what in keys(node).items():
        read = functools.partial(bus.get, CLAIMS, key)
        before = await until_done(read, "claims_awaited")
        if before is None and await until_done(functools.partial(_make, store, key, own), "claims_awaited"):
            made.append(key)
            continue
        present = await until_done(read, "claims_awaited")
        if before is None and present == own:
            made.append(key)  # by an attempt whose answer came too late
        elif present is not None and (reason := objection(what, own, present)):
            for each in made:
                await until_done(functools.partial(store.delete, escape(each)), "claims_awaited")
            raise ClaimError(reason)


async def renew(bus: Bus, node: NodeSettings, host: str) -> dict[str, str]:
    """Claims a running node's keys again, which the bus may have forgotten. Waits for the bus.

    Unlike `claim`, it keeps the rest where another node has taken a part: this node runs, and no other may have the
    rest too.

    Returns:
        By key, the reason why it may not have a thing that another node has by now; empty: all is its own.
    """
    own = Claim(node=node.name, host=host)
    store = await until_done(functools.partial(bus.store, CLAIMS), "claims_awaited")
    reasons = {}
    for key, what in keys(node).items():
        # A fleet whose nodes come back at once only reads, and writes only claims that are gone.
        known = await until_done(functools.partial(bus.get, CLAIMS, key), "claims_awaited")
        if known is None and await until_done(functools.partial(_make, store, key, own), "claims_awaited"):
            log.warning("claim_renewed", claim=what)
        elif reason := await _objection(bus, key, what, own):
            reasons[key] = reason
    return reasons


async def check(bus: Bus, node: NodeSettings, host: str) -> None:
    """Makes sure that no other node has claimed the node's name, index and addresses.

    Claims nothing. Waits for the bus.

    Raises:
        ClaimError: another node has one of them.
    """
    own = Claim(node=node.name, host=host)
    for key, what in keys(node).items():
        if reason := await _objection(bus, key, what, own):
            raise ClaimError(reason)


async def _make(store: Any, key: str, own: Claim) -> bool:
    try:
        await store.create(escape(key), encode(own))
    except KeyWrongLastSequenceError:
        return False
    return True


async def _objection(bus: Bus, key: str, what: str, own: Claim) -> str:
    present = await until_done(functools.partial(bus.get, CLAIMS, key), "claims_awaited")
    return "" if present is None else objection(what, own, present)
