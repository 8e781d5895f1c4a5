"""Modules of somebody's own that every service loads at its start: kinds of event, detectors, verbs, actuators.

Such a module has a function ``extend(service)``. It is called in each service with its name, and registers there what concerns that service:
its kinds of event and its orders everywhere, its detector in the detector only, and so on. `foliot` calls it with ``cli``.
"""

from __future__ import annotations

import importlib

import msgspec

from foliot.settings import SettingsError, load


class ExtensionSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[extensions]``: code beside Foliot's own that services run. It has all rights of the service that loads it."""

    modules: tuple[str, ...] = ()
    """Python modules by name, as ``import`` finds them; loaded in this order."""


def extend(service: str) -> None:
    """Loads the modules that the settings name, and lets each register what it has for a service.

    Raises:
        SettingsError: one of them cannot be imported, has no function ``extend``, or registers what is there already.
    """
    for name in load(ExtensionSettings, "extensions").modules:
        try:
            importlib.import_module(name).extend(service)
        except (ImportError, AttributeError, ValueError) as error:
            raise SettingsError(f"extensions.modules: {name} cannot be loaded: {error}") from error
