"""``foliot keys``: credentials for services and nodes, TLS, and the server's part of both."""

from __future__ import annotations

import argparse  # noqa: TC003 - argparse's private type is part of the signature
import datetime as dt
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from foliot_schemas.permissions import NODE_ROLES, ROLES, permissions

if TYPE_CHECKING:
    from foliot.keys.keyring import Keyring


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser("keys", help="make, list and revoke credentials for the bus")
    parser.add_argument(
        "--keys", default="keys", metavar="DIR", type=Path, help="directory of the keys (default: %(default)s)"
    )
    parser.set_defaults(func=_keys)
    verbs = parser.add_subparsers(required=True, metavar="verb")
    make = verbs.add_parser("make", help="make the keys of a fleet, and its services' credentials")
    make.add_argument(
        "--host", action="append", default=[], metavar="NAME",
        help="name or address that the NATS server is reached under; makes certificates for TLS; may be repeated",
    )  # fmt: skip
    make.add_argument(
        "--missing", action="store_true",
        help="make only what is not there, and a certificate that is for other names or ends within 30 days",
    )  # fmt: skip
    make.set_defaults(verb=_make)
    node = verbs.add_parser("node", help="make the credentials of nodes: a directory for each")
    node.add_argument("name", nargs="+", help="names of nodes")
    node.add_argument("--days", type=float, default=0, help="days until they end (default: they hold until revoked)")
    node.add_argument(
        "--missing", action="store_true", help="make only what is not there; what was revoked is there, and stays void"
    )
    node.set_defaults(verb=_node)
    tool = verbs.add_parser("tool", help="make credentials that may only listen, for a tool or a person")
    tool.add_argument("name", help="name of the tool or person")
    tool.add_argument(
        "--role", choices=("reader", "scheduler"), default="reader",
        help="reader only listens; scheduler may register jobs and drain nodes, too (default: %(default)s)",
    )  # fmt: skip
    tool.add_argument("--days", type=float, default=0, help="days until they end (default: they hold until revoked)")
    tool.set_defaults(verb=_tool)
    revoke = verbs.add_parser("revoke", help="void the credentials of a node, service or tool")
    revoke.add_argument("name", help="name of the node, service or tool")
    revoke.set_defaults(verb=_revoke)
    verbs.add_parser("list", help="list the credentials that were made").set_defaults(verb=_list)
    conf = verbs.add_parser("server-conf", help="write server.conf again, after an update of Foliot")
    conf.set_defaults(verb=_server_conf)
    subjects = verbs.add_parser("subjects", help="print what a role may publish and subscribe to")
    subjects.add_argument("role", choices=ROLES)
    subjects.set_defaults(func=_subjects)


def _keys(arguments: argparse.Namespace) -> int:
    # Made where keys are made; a node has no library for certificates.
    try:
        from foliot.keys.keyring import Keyring, KeyringError  # noqa: PLC0415
    except ImportError as error:
        sys.stderr.write(f"foliot keys: {error.name} is not installed; pip install 'foliot[keys]' brings it\n")
        return 1
    try:
        arguments.verb(Keyring(arguments.keys, time.time), arguments)
    except (KeyringError, OSError) as error:
        sys.stderr.write(f"foliot keys: {error}\n")
        return 1
    return 0


def _make(keyring: Keyring, arguments: argparse.Namespace) -> None:
    keyring.make(tuple(arguments.host), missing=arguments.missing)
    print(f"{keyring.folder}/secret    stays here: who has it, can make credentials")
    print(f"{keyring.folder}/server    goes to the NATS server; its configuration includes server.conf")
    print(f"{keyring.folder}/services  a directory for each service, which goes to it alone")
    print(
        f"{keyring.folder}/tools     reader.creds for who only listens, scheduler.creds for who registers jobs, admin.creds for you"
    )
    if not arguments.host:
        print(
            "No TLS: without --host, there is no certificate; credentials are safe on the wire, "
            "messages are not secret."
        )


def _node(keyring: Keyring, arguments: argparse.Namespace) -> None:
    for name in arguments.name:
        folder = keyring.issue_node(name, arguments.days, missing=arguments.missing)
        print(f"{folder}    goes to {name} alone")


def _tool(keyring: Keyring, arguments: argparse.Namespace) -> None:
    print(keyring.issue(arguments.role, arguments.name, arguments.days))


def _revoke(keyring: Keyring, arguments: argparse.Namespace) -> None:
    for record in keyring.revoke(arguments.name):
        print(f"revoked: {record.role} {record.name}, made {_date(record.issued_s)}")
    print(f"{keyring.server_conf} is written; it holds when each server has read it: nats-server --signal reload")


def _list(keyring: Keyring, _: argparse.Namespace) -> None:
    now_s = time.time()
    for record in keyring.issued():
        state = "holds"
        if record.revoked_s:
            state = f"revoked {_date(record.revoked_s)}"
        elif record.expires_s:
            state = f"{'holds until' if now_s < record.expires_s else 'expired'} {_date(record.expires_s)}"
        print(f"{record.role:<11} {record.name:<24} made {_date(record.issued_s)}  {state}")


def _server_conf(keyring: Keyring, _: argparse.Namespace) -> None:
    keyring.write_server_conf()
    print(keyring.server_conf)


def _subjects(arguments: argparse.Namespace) -> int:
    allowed = permissions(arguments.role, "NODE" if arguments.role in NODE_ROLES else arguments.role)
    for verb, subjects in (("publish", allowed.publish), ("subscribe", allowed.subscribe)):
        for subject in subjects:
            print(f"{verb:<10} {subject}")
    return 0


def _date(time_s: int) -> str:
    return dt.datetime.fromtimestamp(time_s, dt.UTC).strftime("%Y-%m-%d %H:%M UTC")
