"""NATS' JWTs (version 2), signed with Ed25519 nkeys.

An operator vouches for accounts, an account's signing key for users. The forms are those of NATS' decentralised
authentication (docs.nats.io, "JWT"; ADR-14). Each role has a signing key of its own in the account's token, with the
role's permissions beside it ("scoped"). A user signed by it has these permissions and can have no others.
"""

from __future__ import annotations

import base64
import hashlib
import os
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import nkeys

from foliot.bus.credentials import ROLE_TAG

if TYPE_CHECKING:
    from collections.abc import Mapping

    from foliot_schemas.permissions import Permissions, Role

_HEADER = {"typ": "JWT", "alg": "ed25519-nkey"}
_KINDS = {"operator": nkeys.PREFIX_BYTE_OPERATOR, "account": nkeys.PREFIX_BYTE_ACCOUNT, "user": nkeys.PREFIX_BYTE_USER}
_UNLIMITED = dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1) | {"wildcards": True}
_JETSTREAM = dict.fromkeys(("mem_storage", "disk_storage", "streams", "consumer"), -1)


class Key(NamedTuple):
    """An nkey pair."""

    seed: str
    """Secret."""
    public: str

    def sign(self, data: bytes) -> bytes:
        """The Ed25519 signature of these bytes."""
        signature: bytes = nkeys.from_seed(bytearray(self.seed.encode())).sign(data)
        return signature


def make_key(kind: str) -> Key:
    """A new key of an operator, account or user."""
    return read_key(nkeys.encode_seed(os.urandom(32), _KINDS[kind]).decode())


def read_key(seed: str) -> Key:
    """The key of a seed.

    Raises:
        nkeys.NkeysError: it is none.
    """
    pair = nkeys.from_seed(bytearray(seed.strip().encode()))
    return Key(seed=seed.strip(), public=pair.public_key.decode())


def operator(key: Key, name: str, system_account: str, now_s: int) -> str:
    """An operator's token, signed by itself."""
    claims = {"type": "operator", "version": 2, "system_account": system_account}
    return _sign(key, claims, subject=key.public, name=name, now_s=now_s)


def account(
    signer: Key,
    key: Key,
    name: str,
    *,
    scopes: Mapping[Role, tuple[str, Permissions]],
    revoked: Mapping[str, int],
    now_s: int,
) -> str:
    """An account's token.

    Parameters:
        signer: the operator's key.
        scopes: per role, the public half of its signing key, and its permissions. The holder's name in them is NATS'
            ``{{name()}}``.
        revoked: a time (seconds since 1970) per user. The user's tokens that were issued then or before are void.
    """
    claims = {
        "type": "account",
        "version": 2,
        # The system account, which has no users, may not have streams either.
        "limits": _UNLIMITED | (_JETSTREAM if scopes else {}),
        "default_permissions": {"pub": {}, "sub": {}},
        "signing_keys": [
            {"kind": "user_scope", "key": public, "role": role, "template": _template(allowed)}
            for role, (public, allowed) in scopes.items()
        ],
        "revocations": dict(revoked),
    }
    return _sign(signer, claims, subject=key.public, name=name, now_s=now_s)


def user(signer: Key, account_key: str, key: Key, *, role: Role, name: str, now_s: int, expires_s: int = 0) -> str:
    """A user's token, in a scope: its permissions are those of the signing key.

    Parameters:
        name: as a subject token.
        expires_s: seconds since 1970; 0: never.
    """
    claims = {"type": "user", "version": 2, "issuer_account": account_key, "tags": [f"{ROLE_TAG}{role}"]}
    return _sign(signer, claims, subject=key.public, name=name, now_s=now_s, expires_s=expires_s)


def credentials(token: str, key: Key) -> str:
    """The text of a credentials file, as every NATS client reads it. Secret."""
    return (
        f"-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{key.seed}\n------END USER NKEY SEED------\n"
    )


def _template(allowed: Permissions) -> dict[str, Any]:
    return {
        "pub": {"allow": list(allowed.publish)},
        "sub": {"allow": list(allowed.subscribe)},
        **dict.fromkeys(("subs", "data", "payload"), -1),
    }


def _sign(signer: Key, claims: Mapping[str, Any], *, subject: str, name: str, now_s: int, expires_s: int = 0) -> str:
    body: dict[str, Any] = {"iat": now_s, "iss": signer.public, "name": name, "sub": subject, "nats": claims}
    if expires_s:
        body["exp"] = expires_s
    body["jti"] = base64.b32encode(hashlib.sha256(msgspec.json.encode(body)).digest()).decode().rstrip("=")
    signed = f"{_part(_HEADER)}.{_part(body)}"
    return f"{signed}.{_base64(signer.sign(signed.encode()))}"


def _part(content: Mapping[str, Any]) -> str:
    return _base64(msgspec.json.encode(content))


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
