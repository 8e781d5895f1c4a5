"""The changes of a join in ``/etc/foliot/foliot.toml``. Pure."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from foliot.settings import BusSettings, NodeSettings, SettingsError, read
from foliot.text.toml_text import toml, value_text
from foliot_agent.install.addressing import ANYBODY
from foliot_agent.settings import AgentSettings

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping

SETTINGS = "etc/foliot/foliot.toml"


def asked_of_bus(arguments: argparse.Namespace) -> dict[str, str]:
    """The keys of ``[bus]`` from the command line; files by absolute paths, as services run elsewhere."""
    files = {key: getattr(arguments, key) for key in ("credentials", "ca")}
    return {"url": arguments.bus, **{key: str(Path(path).resolve()) if path else "" for key, path in files.items()}}


def check_telemetry(url: str) -> None:
    """Makes sure that spans can be sent to what ``--telemetry`` gives; empty: it was not given.

    Raises:
        SettingsError: they cannot.
    """
    try:
        parts = urlsplit(url)
        is_whole = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:  # a port that is no number, half an IPv6 address
        is_whole = False
    if url and not is_whole:
        raise SettingsError(
            f"--telemetry {url}: give the whole address, with http:// or https://, as --telemetry http://gateway:8470"
        )


class SettingsFile:
    """The file as it is, and as it shall be.

    Parameters:
        text: its present text; None: there is none.
        asked: the values that were asked for of ``[bus]``; an empty one is as the text says.
        telemetry: the address that was asked for; empty: as the text says.

    Raises:
        SettingsError: the present text cannot be read.
    """

    def __init__(self, text: str | None, asked: Mapping[str, str], telemetry: str = "") -> None:
        self._present_text = text
        self._telemetry = telemetry
        try:
            self._present: dict[str, Any] = tomllib.loads(text or "")
        except (ValueError, RecursionError) as error:
            raise SettingsError(f"/{SETTINGS}: not TOML: {error}") from error
        for section, values in self._present.items():
            if not isinstance(values, dict):
                raise SettingsError(
                    f"/{SETTINGS}: {section}: expected a table [{section}], got {type(values).__name__}"
                )
        self._bus = {**self._present.get("bus", {}), **{key: value for key, value in asked.items() if value}}
        self.bus = read(BusSettings, "bus", {"bus": self._bus}, {}, source=f"/{SETTINGS}")

    @property
    def node(self) -> NodeSettings | None:
        """The node that the present text speaks of."""
        return read(NodeSettings, "node", self._present, {}, source=f"/{SETTINGS}") if "node" in self._present else None

    @property
    def agent_key(self) -> AgentSettings:
        """The agents' shared key in the present text, and nothing else."""
        present = self._present.get("agent", {})
        said = {key: value for key, value in present.items() if key in {"key", "key_file"}}
        return read(AgentSettings, "agent", {"agent": said}, {}, source=f"/{SETTINGS}")

    @property
    def nic_stamps(self) -> bool:
        """Whether the probe is to use the stamps of NICs."""
        return bool(self._present.get("probe", {}).get("nic_stamps", "off") != "off")

    def text(self, node: NodeSettings) -> str:
        """The new text; the present one, comments and all, if it says the same."""
        wanted = self._wanted(node)
        return self._present_text if self._present_text is not None and wanted == self._present else toml(wanted)

    def changes(self, node: NodeSettings, open_yet: Mapping[str, str]) -> Iterator[str]:
        """The differences of the new text, a line each, in TOML as it is written.

        Parameters:
            open_yet: settings whose value nobody knows yet, with words for what it will be.
        """
        before, after = _flat(self._present), _flat(self._wanted(node))
        for key in sorted({*before, *after, *open_yet}):
            if key in open_yet:
                yield f"{key} = ({open_yet[key]})"
            elif before.get(key) != after.get(key):
                new = value_text(after[key]) if key in after else "none"
                yield f"{key}: {value_text(before[key])} -> {new}" if key in before else f"{key} = {new}"

    def _wanted(self, node: NodeSettings) -> dict[str, Any]:
        """The settings that join knows, over what is there: settings made by hand stay."""
        present = self._present
        own = _plain(node)
        defaults = _plain(ANYBODY)
        kept = {key: value for key, value in own.items() if key in present.get("node", {}) or value != defaults[key]}
        wanted: dict[str, Any] = {**present, "bus": {**self._bus, "url": self.bus.url}}
        if self._telemetry:
            wanted["telemetry"] = {**present.get("telemetry", {}), "endpoint": self._telemetry}
        return {**wanted, "node": {"name": node.name, "index": node.index, **kept}}


def _plain(node: NodeSettings) -> dict[str, Any]:
    """As TOML has it: lists instead of tuples, and no empty clock, which is the default."""
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(node))
    plain["nics"] = [{key: value for key, value in nic.items() if value != ""} for nic in plain["nics"]]
    return plain


def _flat(document: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{section}.{key}": value for section, values in document.items() for key, value in values.items()}
