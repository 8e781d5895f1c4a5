"""Sets kernel settings of namespaces, and restores them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from foliot_lab.fabric.namespaces import inside
from foliot_lab.fabric.sysctls import set_sysctls

if TYPE_CHECKING:
    from collections.abc import Mapping

    from foliot_lab.fabric.namespaces import Namespace


class Settings:
    """The settings of namespaces, with their former values."""

    def __init__(self) -> None:
        self._before: list[tuple[Namespace, dict[str, str]]] = []

    def set(self, namespace: Namespace, values: Mapping[str, str]) -> None:
        """Sets these in a namespace.

        Raises:
            OSError: this kernel lacks one or does not permit it.
        """
        with inside(namespace):
            self._before.append((namespace, {name: Path("/proc/sys", name).read_text().strip() for name in values}))
            set_sysctls(values)

    def put_back(self) -> None:
        """Restores the values from before the first `set`."""
        while self._before:
            namespace, values = self._before.pop()
            with inside(namespace):
                set_sysctls(values)
