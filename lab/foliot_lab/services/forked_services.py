"""Starts services as forks of a process that has imported what all of them do.

Two dozen interpreters that import it all at once take the processors for seconds.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from foliot.runtime.supervisor import LISTENS, opened, spawn
from foliot_lab.fabric.namespaces import Entering, Namespace
from foliot_lab.scenario.topology import CENTRAL
from foliot_lab.services.deployment import ON_A_NODE
from foliot_lab.services.forker import Forker

if TYPE_CHECKING:
    from collections.abc import Mapping

    from foliot.runtime.supervisor import Child, ProcessSpec

MODULES = tuple(f"foliot_{name}.service" for name in (*CENTRAL, *ON_A_NODE))
"""What is imported once for all services."""


class ForkedServices:
    """What starts each service for the first time. It imports from now on, while the caller does other things.

    One that starts again has to import, as after a crash anywhere: that is the supervisor's to start.

    Parameters:
        env: of the process that forks. Services have that of this process, and their own.
    """

    def __init__(self, env: Mapping[str, str]) -> None:
        self._forker = Forker(MODULES, env)

    async def start(self, spec: ProcessSpec) -> Child:
        """Starts a service as a fork, and what is no program of Python's by its command."""
        if spec.arguments[:2] != (sys.executable, "-m"):
            return await spawn(spec)
        module, *arguments = spec.arguments[2:]
        own = Namespace.present("own")
        try:
            namespace = spec.setup.namespace if isinstance(spec.setup, Entering) else own
            with opened(spec.log_file) as log:
                return self._forker.start(
                    module, *arguments, namespace=namespace.fd, stdout=log.fileno(), stderr=log.fileno(),
                    env=os.environ | spec.environment | (LISTENS if spec.listener >= 0 else {}),
                    listener=spec.listener,
                )  # fmt: skip
        finally:
            own.close()

    def close(self) -> None:
        """Ends the process that forks, and the services with it."""
        self._forker.close()
