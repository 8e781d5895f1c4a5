"""Chooses between compiled inner loops (`foliot_native`) and their twins in Python, which do the same.

Nothing has to be compiled: whoever asks for a module and gets None uses the twin. ``FOLIOT_NATIVE=off`` in the
environment asks for the twins where the compiled ones are there, too.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from types import ModuleType

log = structlog.get_logger()

VARIABLE = "FOLIOT_NATIVE"
"""The variable of the environment that turns compiled code off."""
OFF = f"{VARIABLE} is off"
"""The reason of `why_python` that the environment gives, and not the installation."""
_INTERFACE = 1
"""`foliot_native.INTERFACE` of the functions that this version calls."""

_asked: dict[str, str] = {}
"""Each module that was asked for, and why it was not given; empty: it was."""


def compiled(name: str) -> ModuleType | None:
    """The compiled module ``foliot_native.<name>``; None: use the twin."""
    module, _asked[name] = _find(name)
    return module


def compiler() -> str | None:
    """What compiled the code that this process runs, and its version; None: it runs none."""
    module = compiled("packet_loop")
    return None if module is None else str(module.COMPILER)


def why_python() -> str:
    """Why this process would not get all that can be compiled, as part of a sentence; empty: it would."""
    package, why = _package()
    if package is None:
        return why
    names = sorted(module.name for module in pkgutil.iter_modules(package.__path__))
    reasons = [why for why in (_find(name)[1] for name in names) if why]
    return reasons[0] if reasons else "" if names else "foliot-native has no module for this version of Python"


def tell() -> None:
    """Logs once which of both this process runs, if it has asked for any of it."""
    if not _asked:
        return
    given = sorted(name for name, why in _asked.items() if not why)
    missing = sorted(name for name, why in _asked.items() if why)
    if missing:
        log.info("native_code", compiled=given, python=missing, why=_asked[missing[0]])
    else:
        log.info("native_code", compiled=given)


def _find(name: str) -> tuple[ModuleType | None, str]:
    package, why = _package()
    if package is None:
        return None, why
    try:
        return importlib.import_module(f"foliot_native.{name}"), ""
    except Exception as error:  # noqa: BLE001 - modules of two builds that do not fit together raise anything
        return None, f"foliot_native.{name} cannot be loaded: {error}"


def _package() -> tuple[ModuleType | None, str]:
    if os.environ.get(VARIABLE) == "off":
        return None, OFF
    try:
        package = importlib.import_module("foliot_native")
    except ModuleNotFoundError:
        return None, "foliot-native is not installed"
    # Of a package that was removed a folder may be left, which Python takes for a package without anything in it.
    interface = getattr(package, "INTERFACE", None)
    if interface != _INTERFACE:
        return None, f"foliot-native has interface {interface}, and this version of Foliot needs {_INTERFACE}"
    return package, ""
