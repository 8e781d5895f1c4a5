"""Settings of an armed agent, and its key: as asked for, from its variables, or from the settings."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from foliot.settings import SettingsError
from foliot_agent.install import envfile, systemd_units
from foliot_agent.install.addressing import PlaceError
from foliot_agent.install.findings import Finding, stop
from foliot_agent.install.settingsfile import SETTINGS

if TYPE_CHECKING:
    import argparse

    from foliot_agent.install.tracked_files import Files
    from foliot_agent.settings import AgentSettings

_KEY = re.compile(r"[A-Za-z0-9+/=_.-]{16,}")


def want(
    files: Files, present: AgentSettings, arguments: argparse.Namespace
) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
    """Asks for the agent's variables, and that it can read the key file that its settings name.

    Returns obstacles, and the changes of the variables, a line each, which never show a key.
    """
    asked = arguments.armed or arguments.key_file
    known = _known(files, arguments) if asked or present.key_file else ""
    key = ""
    found: tuple[Finding, ...] = ()
    try:
        # Of a key that was given and cannot be had, nothing more need be said.
        if arguments.key_file:
            key = _given(arguments.key_file)
        elif arguments.armed in {"bus-away", "always"} and known is not None and not _has_key(known):
            _check(files, present, only_looks=arguments.dry_run)
    except PlaceError as error:
        found = (stop("key", str(error)),)
    text = known or ""
    values = {envfile.KEY: f"'\"{key}\"'"} if key else {}
    # The settings' key file would come before the key.
    values |= {envfile.KEY_FILE: ""} if key and present.key_file else {}
    values |= {envfile.ARMED: arguments.armed} if arguments.armed else {}
    if asked:
        files.want(envfile.PATH, envfile.with_values(text, values), 0o600)
    path = present.key_file.lstrip("/")
    is_used = path and not key and envfile.value(text, envfile.KEY_FILE) is None
    systemd_units.want_key(files, Path("/") / path if is_used and not _is_for_all(files, path) else None)
    return found, _changes(text, key, arguments)


def _has_key(known: str) -> bool:
    return any(envfile.value(known, name) is not None for name in (envfile.KEY, envfile.KEY_FILE))


def _changes(known: str, key: str, arguments: argparse.Namespace) -> tuple[str, ...]:
    changes = []
    if arguments.armed and (before := envfile.value(known, envfile.ARMED)) != arguments.armed:
        changes.append(f"agent.env: {envfile.ARMED}={'' if before is None else f'{before} -> '}{arguments.armed}")
    if arguments.key_file and not (key and envfile.value(known, envfile.KEY) == key):
        changes.append(f"agent.env: {envfile.KEY}=(what {arguments.key_file} has)")
    return tuple(changes)


def _given(path: Path) -> str:
    try:
        key = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise PlaceError(f"--key-file {path}: cannot be read: {getattr(error, 'strerror', 'no text')}") from error
    if not _KEY.fullmatch(key):
        raise PlaceError(f"--key-file {path}: a key has at least 16 letters, digits, or + / = _ . -")
    return key


def _known(files: Files, arguments: argparse.Namespace) -> str | None:
    """The text of the agent's variables. None: this is only a look, by somebody who may not see them."""
    try:
        return files.read(envfile.PATH) or ""
    except PermissionError:
        if arguments.dry_run:
            return None
        raise


def _is_for_all(files: Files, path: str) -> bool:
    try:
        return files.is_for_all(path)
    except OSError:  # not even we may look
        return False


def _check(files: Files, present: AgentSettings, *, only_looks: bool) -> None:
    """Makes sure that the settings have a key; a file's path is meant below the root."""
    if not (present.key or present.key_file):
        raise PlaceError(
            "--armed: agents that move by themselves tell each other so under a key: give --key-file, "
            f"or set agent.key_file in /{SETTINGS}"
        )
    below = str(files.root / present.key_file.lstrip("/")) if present.key_file else ""
    try:
        msgspec.structs.replace(present, key_file=below, armed="always").secret()
    except SettingsError as error:
        if not (only_looks and isinstance(error.__cause__, PermissionError)):
            raise PlaceError(f"--armed: {error} (from /{SETTINGS}); put it right, or give --key-file") from error
    except ValueError as error:
        raise PlaceError(f"--armed: agent.key in /{SETTINGS} is too short; put it right, or give --key-file") from error
