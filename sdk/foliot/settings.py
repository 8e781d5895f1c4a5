"""Settings: one TOML file, overridden by environment variables; a wrong value stops the start and names the key.

``FOLIOT_CONFIG`` names the file. ``FOLIOT_PROBE__IN_USE_HZ=50`` overrides ``in_use_hz`` in ``[probe]`` by a TOML value,
or else a string.

A section's struct may name the keys of an earlier version, as ``removed: ClassVar[frozenset[str]]``. Of one, a warning
says that it has no effect, and the service starts.
"""

from __future__ import annotations

import math
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
import structlog

from foliot.places import CLOCK_PAGE

log = structlog.get_logger()

SECTIONS = frozenset(
    {
        "bus",
        "telemetry",
        "health",
        "node",
        "clock",
        "probe",
        "agent",
        "sync",
        "detector",
        "remediator",
        "shard",
        "gateway",
        "extensions",
        "lab",
    },
)

Section = TypeVar("Section", bound=msgspec.Struct)


class SettingsError(ValueError):
    """A setting is wrong; the message names the key and where it was read."""


class BusSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[bus]``: where NATS is."""

    url: str = "nats://127.0.0.1:4222"
    """One server or, separated by commas, several of a cluster; ``tls://`` where the server demands TLS."""
    credentials: str = ""
    """Path of the file that `foliot keys` made, or of the directory in which every service finds its own by name.
    Empty: the server asks for none."""
    ca: str = ""
    """Path of the certificate that vouches for the server's; empty: those that the system trusts."""
    replicas: int = 1
    """Copies of each stream and bucket; 3 on a NATS cluster."""


class HealthSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[health]``: where a service shows that it lives."""

    file: str = ""
    """Touched every second while the service's loop turns and the bus answers; see `foliot.runtime.liveness_file`.
    Empty: none."""


class ClockSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[clock]``: where the processes of a node find the time. The probe writes there, and every process reads."""

    page: str = CLOCK_PAGE
    """Path of the page of shared memory; one for each node, in a folder that only the probe writes to. Empty: none."""


LogLevel = Literal["debug", "info", "warning", "error"]


class TelemetrySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[telemetry]``: where spans go. ``OTEL_EXPORTER_OTLP_ENDPOINT``, if set, gets them as well."""

    endpoint: str = "http://127.0.0.1:8470"
    """An OTLP/HTTP receiver, without ``/v1/traces``: by default the gateway. Empty: spans are made but not sent."""
    log_level: LogLevel = "info"
    """Logs go to standard error: coloured lines on a terminal, JSON elsewhere."""
    loop_steps: str = ""
    """A file that counts how long the steps of the service's loop take, see `foliot.runtime.loop_steps`. Empty: none,
    and only the log tells of long steps."""


class NicSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[[node.nics]]``: a backend NIC."""

    rail: str
    """Name of the rail that the NIC is on, such as ``rail0``."""
    number: int
    """Number of the rail, 0 to 7, which gives its part of the service and path prefixes. The same on every node."""
    device: str = ""
    """The NIC's network device. Empty: the device that has the address. See `foliot.node.nic_discovery`."""
    address: str = ""
    """The NIC's own address in the fabric, or a prefix that it lies in (``10.16.0.0/16``). Empty: the device's only
    address."""
    clock: str = ""
    """The clock that stamps for it; empty: the host's system clock."""


class NodeSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[node]``: who this node is. Probe and agent read the same."""

    name: str
    """Name of the node, unique in the fleet."""
    index: int
    """Number of the node from 0, unique in the fleet. It gives the node's addresses within the prefixes."""
    nics: tuple[NicSettings, ...]
    """The backend NICs, one for each rail."""
    service_prefix: str = "10.200.0.0/13"
    """Carved into a /16 per rail; jobs use these addresses."""
    path_prefix: str = "100.64.0.0/10"
    """Carved into a network per rail and entropy; probes use these addresses. The default is RFC 6598's shared space."""
    entropies: tuple[int, ...] = (49200, 49201, 49202, 49203)
    """UDP source ports of the overlay, at most 64: what the switches' hash sees. Indexes of nodes go up to 65,533 with 8
    of them, 32,765 with 16, 16,381 with 32 and 8,189 with 64: by the node of a fleet that has most."""
    probe_port: int = 7946
    """UDP port of the probes."""
    agent_port: int = 7947
    """UDP port of the agents' datagrams to each other."""
    peers: tuple[str, ...] = ()
    """Nodes that this one exchanges traffic with, and so probes. Empty: all of the fleet, which may have some hundred
    nodes then."""


def load(kind: type[Section], section: str) -> Section:
    """One section of the settings.

    Raises:
        SettingsError: a key is unknown, missing, or its value is wrong.
    """
    path = os.environ.get("FOLIOT_CONFIG", "")
    return read(kind, section, _file(path), os.environ, source=path or "no file: FOLIOT_CONFIG is not set")


def read(
    kind: type[Section],
    section: str,
    document: Mapping[str, Any],
    environment: Mapping[str, str],
    *,
    source: str,
) -> Section:
    """One section from a parsed document and an environment; what `load` does without the I/O, with its errors."""
    unknown = sorted(set(document) - SECTIONS)
    if unknown:
        raise SettingsError(f"{source}: no such section: {', '.join(unknown)}; there are {', '.join(sorted(SECTIONS))}")
    found = document.get(section, {})
    if not isinstance(found, Mapping):
        raise SettingsError(f"{section}: expected a table [{section}], got {type(found).__name__} (from {source})")
    prefix = f"FOLIOT_{section.upper()}__"
    overrides = {name.removeprefix(prefix).lower(): name for name in environment if name.startswith(prefix)}
    values = {**found, **{key: _value(environment[name]) for key, name in overrides.items()}}
    for key in sorted(values.keys() & getattr(kind, "removed", frozenset())):
        del values[key]
        log.warning(
            "setting_without_effect",
            setting=f"{section}.{key}",
            reason="it is no longer a setting",
            source=overrides.get(key, source),
        )
    if infinite := _not_finite(values):
        raise SettingsError(f"{section}.{infinite}: expected a finite number (from {overrides.get(infinite, source)})")
    try:
        return msgspec.convert(values, kind, strict=True)
    except msgspec.ValidationError as error:
        raise SettingsError(_sentence(str(error), section, source, overrides)) from None


def _file(path: str) -> dict[str, Any]:
    if not path:
        return {}
    try:
        return tomllib.loads(Path(path).read_text())
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        # Such a file may also be no UTF-8, have a number of thousands of digits, or be nested without end.
        raise SettingsError(f"{path}: not TOML: {error}") from error


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text


def _not_finite(values: Mapping[str, Any]) -> str:
    """The first key whose value is infinite or not a number, which no setting means; empty: there is none."""
    return next((key for key, value in values.items() if isinstance(value, float) and not math.isfinite(value)), "")


def _sentence(reason: str, section: str, source: str, overrides: Mapping[str, str]) -> str:
    """Turns msgspec's "Expected `int`, got `str` - at `$.nics[0].number`" into "node.nics[0].number: expected ..."."""
    what, _, where = reason.partition(" - at `$")
    named = re.search(r"field `(\w+)`", what)
    key = where.rstrip("`").lstrip(".") or (named[1] if named else "")
    came_from = overrides.get(re.split(r"[.\[]", key)[0], source)
    return f"{section}.{key}: {what[0].lower()}{what[1:]} (from {came_from})"
