"""The directory of `foliot keys`: `secret`, and a directory for each place that files go to.

``secret/`` stays where keys are made.
``server/`` goes to the NATS server.
``services/<service>/`` goes to a service.
``nodes/<node>/`` goes to a node.
``tools/`` goes to those who watch, and to you.
"""

from __future__ import annotations

import datetime as dt
import os
import secrets
from typing import TYPE_CHECKING

import msgspec

from foliot.keys import certificates, tokens
from foliot_schemas.names import escape
from foliot_schemas.permissions import NODE_ROLES, ROLES, Role, permissions

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SERVICES: tuple[Role, ...] = ("sync", "detector", "remediator", "gateway")
TOOLS: tuple[Role, ...] = ("scheduler", "reader", "admin")
_SECRET = 0o600
_PUBLIC = 0o644
_FOLDER = 0o700


class KeyringError(Exception):
    """The directory cannot be used; the message says why."""


class Issued(msgspec.Struct, frozen=True, kw_only=True):
    """Credentials that were made, so that they can be listed and revoked."""

    role: Role
    name: str
    user: str
    """Public key."""
    issued_s: int
    expires_s: int = 0
    """Seconds since 1970; 0: never."""
    revoked_s: int = 0
    """0: they hold."""


class Keyring:
    """Makes and revokes credentials. Methods that sign, list or revoke raise `KeyringError` where there are no keys.

    Parameters:
        folder: the keys' folder; `secret/` in it stays where keys are made.
        now_s: the time, in seconds since 1970.
    """

    def __init__(self, folder: Path, now_s: Callable[[], float]) -> None:
        self.folder = folder
        self._secret = folder / "secret"
        self._now_s = now_s

    @property
    def server_conf(self) -> Path:
        """The path of the file that nats-server's configuration includes."""
        return self.folder / "server" / "server.conf"

    @property
    def fleet_key(self) -> str:
        """The key that seals the agents' datagrams."""
        return (self._secret / "fleet.key").read_text()

    def make(self, hosts: tuple[str, ...] = (), *, missing: bool = False) -> None:
        """Makes everything but the nodes' credentials.

        Parameters:
            hosts: names and addresses of the server; without any, it speaks no TLS.
            missing: whether to make only missing files, and a server's certificate that is for other names or soon
                ends.

        Raises:
            KeyringError: there are keys already, and not only the missing ones were asked for.
        """
        if not missing and (self._secret / "issued.json").exists():
            raise KeyringError(f"there are keys in {self.folder} already; delete them, or choose another directory")
        self.folder.mkdir(parents=True, exist_ok=True)
        for part in ("secret", "server", "services", "nodes", "tools"):
            (self.folder / part).mkdir(_FOLDER, exist_ok=True)
        self._make_secret("operator.nk", lambda: tokens.make_key("operator").seed)
        for name in ("account", "system"):
            self._make_secret(f"{name}.nk", lambda: tokens.make_key("account").seed)
        self._make_role_keys()
        self._make_secret("fleet.key", lambda: secrets.token_hex(32))
        self._make_operator()
        if not (self._secret / "issued.json").exists():
            self._keep([])
        if hosts:
            self._make_certificates(hosts)
        self.write_server_conf()
        for role in (*SERVICES, *TOOLS):
            if not self._is_complete(role, role):
                self.issue(role, role)

    def issue(self, role: Role, name: str, days: float = 0) -> Path:
        """Makes credentials, anew if there were some, and returns their file.

        The old ones hold on until they are revoked.

        Parameters:
            name: of the node, service, tool or person.
            days: how long they hold; 0: until revoked.
        """
        issued = self.issued()
        key, now_s = tokens.make_key("user"), int(self._now_s())
        expires_s = now_s + round(days * 86_400) if days else 0
        token = tokens.user(
            self._key(role), self._key("account").public, key,
            role=role, name=escape(name), now_s=now_s, expires_s=expires_s,
        )  # fmt: skip
        path = self.path(role, name)
        path.parent.mkdir(_FOLDER, exist_ok=True)
        if (self.folder / "ca.pem").exists():
            _write(path.with_name("ca.pem"), (self.folder / "ca.pem").read_text(), _PUBLIC)
        _write(path, tokens.credentials(token, key), _SECRET)
        record = Issued(role=role, name=name, user=key.public, issued_s=now_s, expires_s=expires_s)
        self._keep([*issued, record])
        return path

    def path(self, role: Role, name: str) -> Path:
        """The path of a holder's credentials."""
        if role in NODE_ROLES:
            return self.folder / "nodes" / escape(name) / f"{role}.creds"
        where = self.folder / "services" / role if role in SERVICES else self.folder / "tools"
        return where / f"{escape(name)}.creds"

    def issue_node(self, name: str, days: float = 0, *, missing: bool = False) -> Path:
        """Makes the directory for a node: credentials of probe and agent, the fleet's key, and the authority.

        Parameters:
            missing: whether to make only missing files. Revoked credentials are not missing.
        """
        for role in NODE_ROLES:
            if not (missing and self._is_complete(role, name)):
                self.issue(role, name, days)
        folder = self.path(NODE_ROLES[0], name).parent
        _write(folder / "fleet.key", self.fleet_key, _SECRET)
        return folder

    def revoke(self, name: str) -> list[Issued]:
        """Voids all credentials of this name that were made until now.

        They are void once the server has read its configuration again.

        Raises:
            KeyringError: there are none of this name.
        """
        issued, now_s = self.issued(), int(self._now_s())
        void = [record for record in issued if record.name == name and not record.revoked_s]
        if not void:
            raise KeyringError(f"there are no credentials of {name}; foliot keys list shows those that there are")
        self._keep(
            [msgspec.structs.replace(record, revoked_s=now_s) if record in void else record for record in issued]
        )
        self.write_server_conf()
        return void

    def issued(self) -> list[Issued]:
        """All credentials that were made, by their age."""
        try:
            return msgspec.json.decode((self._secret / "issued.json").read_bytes(), type=list[Issued])
        except OSError as error:
            raise KeyringError(
                f"there are no keys in {self.folder} ({error.strerror}); foliot keys make them"
            ) from error

    def write_server_conf(self) -> None:
        """Writes the file that the server includes.

        It is made from the keys, each role's permissions in this version, and the revocations. A role that is new in
        this version gets its key.
        """
        account, system = self._key("account"), self._key("system")
        revoked = {record.user: record.revoked_s for record in self.issued() if record.revoked_s}
        self._make_role_keys()
        scopes = {role: (self._key(role).public, permissions(role)) for role in ROLES}
        preload = {
            account.public: tokens.account(
                self._key("operator"), account, "foliot", scopes=scopes, revoked=revoked, now_s=int(self._now_s())
            ),
            system.public: self._read("system.jwt"),
        }
        lines = [
            "# Made by `foliot keys`, for nats-server's configuration to include. It holds nothing secret.",
            f"operator: {self._read('operator.jwt')}",
            f"system_account: {system.public}",
            "resolver: MEMORY",
            "resolver_preload: {",
            *(f"  {public}: {token}" for public, token in preload.items()),
            "}",
        ]
        folder = self.server_conf.parent.resolve()
        if (folder / "server.pem").exists():
            lines += ["tls: {", *(f'  {kind}_file: "{folder / name}"' for kind, name in _TLS), "}"]
        _write(self.server_conf, "\n".join(lines) + "\n", _PUBLIC)

    def _make_role_keys(self) -> None:
        for role in ROLES:
            self._make_secret(f"{role}.nk", lambda: tokens.make_key("account").seed)

    def _make_secret(self, name: str, text: Callable[[], str]) -> None:
        """Makes a secret once: signatures of a key are void with another."""
        if not (self._secret / name).exists():
            _write(self._secret / name, text(), _SECRET)

    def _is_complete(self, role: Role, name: str) -> bool:
        """Whether credentials lie where they should, made with these keys and beside the present authority."""
        path, authority = self.path(role, name), self.folder / "ca.pem"
        beside = path.with_name("ca.pem")
        if not path.exists() or not any((record.role, record.name) == (role, name) for record in self.issued()):
            return False
        return not authority.exists() or (beside.exists() and beside.read_bytes() == authority.read_bytes())

    def _make_operator(self) -> None:
        """Makes the operator once: a server that runs takes no other operator, nor another token of the same."""
        operator, system, now_s = self._key("operator"), self._key("system"), int(self._now_s())
        self._make_secret("operator.jwt", lambda: tokens.operator(operator, "foliot", system.public, now_s))
        self._make_secret(
            "system.jwt", lambda: tokens.account(operator, system, "system", scopes={}, revoked={}, now_s=now_s)
        )

    def _make_certificates(self, hosts: tuple[str, ...]) -> None:
        """Makes certificates that are missing or void, each after its key, so that an existing one has its key."""
        now = dt.datetime.fromtimestamp(self._now_s(), dt.UTC)
        authority, (server, key) = self.folder / "ca.pem", (self.server_conf.with_name(name) for _, name in _TLS)
        is_new = not authority.exists()
        if is_new:
            made = certificates.authority(now)
            _write(self._secret / "ca-key.pem", made.key.decode(), _SECRET)
            _write(authority, made.certificate.decode(), _PUBLIC)
        is_there = not is_new and server.exists() and key.exists()
        if is_there and certificates.serves(server.read_bytes(), hosts, now):
            return
        issuer = certificates.Certificate(authority.read_bytes(), self._read("ca-key.pem").encode())
        made = certificates.server(issuer, hosts, now)
        server.unlink(missing_ok=True)
        _write(key, made.key.decode(), _SECRET)
        _write(server, made.certificate.decode(), _PUBLIC)

    def _key(self, name: str) -> tokens.Key:
        return tokens.read_key(self._read(f"{name}.nk"))

    def _read(self, name: str) -> str:
        try:
            return (self._secret / name).read_text()
        except OSError as error:
            raise KeyringError(f"{self._secret / name}: {error.strerror}") from error

    def _keep(self, issued: list[Issued]) -> None:
        _write(self._secret / "issued.json", msgspec.json.format(msgspec.json.encode(issued)).decode() + "\n", _SECRET)


_TLS = (("cert", "server.pem"), ("key", "server-key.pem"))


def _write(path: Path, text: str, mode: int) -> None:
    """Replaces a file at once.

    With any umask, it is never readable by more than `mode` says, and in the end by no less.
    """
    beside = path.with_name(f".{path.name}.new")
    beside.unlink(missing_ok=True)
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as file:
        os.fchmod(file.fileno(), mode)
        file.write(text)
    beside.replace(path)
