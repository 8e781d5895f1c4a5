"""Loads a user's own modules into every service at its start: kinds of event, detectors, verbs, actuators.

Such a module has a function ``extend(service)``. Each service calls it with its own name, and it registers the parts
for that service. Kinds of event and orders go everywhere, a detector only into the detector, and so on. `foliot` calls
it with ``cli``.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any, cast

import msgspec

from foliot.settings import Section, SettingsError, load, read

if TYPE_CHECKING:
    from collections.abc import Mapping

_SECTION = "extensions"


class ExtensionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[extensions]``: code beside Foliot's own that services run. It has all rights of the service that loads it.

    Beside `modules` it has a table for each of them, ``[extensions.NAME]``, which `own_settings` reads.
    """

    modules: tuple[str, ...] = ()
    """Python modules by name, as ``import`` finds them; loaded in this order."""


def extend(service: str, document: Mapping[str, Any] | None = None) -> None:
    """Loads the modules that the settings name, and lets each register its parts for a service.

    Parameters:
        document: a scenario's settings in place of the file's; the environment overrides both.

    Raises:
        SettingsError: a module cannot be imported, has no ``extend``, or registers a name that is there already; a
            table belongs to no module.
    """
    modules = _read(ExtensionSettings, document).modules
    tables: list[Any] = [(f"table{number}", dict[str, Any], {}) for number in range(len(modules))]
    names = {f"table{number}": name for number, name in enumerate(modules)}
    fields = [("modules", tuple[str, ...], ()), *tables]
    _read(msgspec.defstruct("Known", fields, rename=names, forbid_unknown_fields=True), document)
    for name in modules:
        try:
            importlib.import_module(name).extend(service)
        except SettingsError:
            raise
        except (ImportError, AttributeError, ValueError) as error:
            raise SettingsError(f"extensions.modules: {name} cannot be loaded: {error}") from error


def own_settings(kind: type[Section], module: str) -> Section:
    """The settings of an extension: its table ``[extensions.NAME]``.

    Parameters:
        module: its name as `modules` has it: ``__name__`` of the module itself.

    Raises:
        SettingsError: a key is unknown, missing, or its value is wrong.
    """
    is_needed = any(field.required for field in msgspec.structs.fields(kind))
    table = msgspec.field() if is_needed else msgspec.field(default_factory=kind)
    own: Any = load(msgspec.defstruct("Own", [("table", kind, table)], rename={"table": module}), _SECTION)
    return cast("Section", own.table)


def _read(kind: type[Section], document: Mapping[str, Any] | None) -> Section:
    if document is None:
        return load(kind, _SECTION)
    return read(kind, _SECTION, document, os.environ, source="the scenario")
