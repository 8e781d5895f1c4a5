"""The fleet of compose.yaml under a name of its own, and what it takes to look at it and to cut its cables."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
NODES = tuple(f"node{number}" for number in range(8))
RAILS = ("rail0", "rail1")
_PROJECT = f"foliot-test-{os.getpid()}"
_TAG = "test"
_UP_S = 300
_DEADLINE_S = 120.0
_LOOK_S = 0.25


class Fleet:
    """A fleet that is up between `up` and `down`."""

    def __init__(self) -> None:
        self.environment = {
            **os.environ,
            "COMPOSE_PROJECT_NAME": _PROJECT,
            "FOLIOT_TAG": _TAG,
            "GATEWAY_PORT": "0",  # any free one
            "GATEWAY_GRPC_PORT": "0",
            "RAIL0_PREFIX": "10.46.0",
            "RAIL1_PREFIX": "10.47.0",
        }
        self.gateway = ""

    def up(self) -> None:
        """Builds what is missing, starts everything and waits until it is healthy."""
        self.compose("up", "--build", "--detach", "--quiet-pull", "--wait", "--wait-timeout", str(_UP_S))
        self.gateway = f"http://{self.compose('port', 'gateway', '8470').strip()}"

    def down(self) -> None:
        """Takes everything away."""
        self.compose("down", "--volumes", "--remove-orphans", "--timeout", "5")

    def left(self) -> str:
        """What there is of the fleet: containers, networks, volumes; the images stay for the next time."""
        kinds = (("ps", "--all"), ("network", "ls"), ("volume", "ls"))
        label = f"label=com.docker.compose.project={_PROJECT}"
        return "".join(self._run("docker", *kind, "--quiet", "--filter", label) for kind in kinds)

    def compose(self, *arguments: str) -> str:
        """The output of a ``docker compose`` command."""
        return self._run("docker", "compose", *arguments)

    def execute(self, service: str, *command: str) -> str:
        """The output of a command in a container."""
        return self.compose("exec", "-T", service, *command)

    def keys(self, *arguments: str) -> str:
        """The output of ``foliot keys`` with these arguments, or, without any, of what `up` runs first."""
        return self.compose("run", "--rm", "-T", "keys", *arguments)

    def inspect(self) -> dict[str, Any]:
        """What Docker says of each container, by the name of its service."""
        containers = json.loads(self._run("docker", "inspect", *self.compose("ps", "--all", "--quiet").split()))
        return {each["Config"]["Labels"]["com.docker.compose.service"]: each for each in containers}

    def cable(self, node: str, rail: str, state: str) -> None:
        """Sets the bridge's end of a node's NIC up or down, as nobody inside the node could."""
        far = re.search(r"@if(\d+):", self.execute(node, "ip", "-oneline", "link", "show", rail))
        assert far is not None
        self._run(
            "docker", "run", "--rm", "--network=host", "--cap-drop=ALL", "--cap-add=NET_ADMIN", f"foliot/node:{_TAG}",
            "ip", "link", "set", f"if{far[1]}", state,
        )  # fmt: skip

    def read(self, path: str) -> str:
        """What the gateway serves."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"{self.gateway}{path}", timeout=60) as answer:
            return answer.read().decode()

    def get(self, what: str) -> Any:
        """An answer of the gateway's API."""
        return json.loads(self.read(f"/api/v1/{what}"))

    def nic(self, name: str) -> Any:
        """What the gateway knows of a NIC."""
        return next(nic for node in self.get("fleet") for nic in node["nics"] if nic["nic"] == name)

    def ways(self, nic: str) -> int:
        """How many ways a NIC gives to traffic from and to other nodes; several paths between two NICs are one."""
        return len({(path["source"], path["destination"]) for path in self.get(f"paths?nic={nic}") if path["in_force"]})

    def flaps(self, nic: str) -> list[Any]:
        """The events of kind flap about a NIC, oldest first."""
        return [event for event in reversed(self.get("events?kind=flap&limit=1000")) if event["who"] == nic]

    def records(self) -> dict[tuple[str, ...], Any]:
        """All events and commands that the gateway has; what two nodes did by themselves for one fault are two."""
        return {
            (what, each["id"], each.get("node", "")): each
            for what in ("events", "commands")
            for each in self.get(f"{what}?limit=10000")
        }

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Waits, generously, until something is so."""
        deadline_s = time.monotonic() + _DEADLINE_S
        while not condition():
            if time.monotonic() > deadline_s:
                raise AssertionError(f"never: {what}; {self.get('fleet')}")
            time.sleep(_LOOK_S)

    def _run(self, *command: str) -> str:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        if done.returncode != 0:
            raise AssertionError(f"{' '.join(command)}: {done.stdout[-2_000:]}{done.stderr[-4_000:]}")
        return done.stdout


def engine() -> str:
    """Why these tests cannot run here; empty: they can."""
    if os.environ.get("FOLIOT_CONTAINERS") != "1":
        return "builds images and starts 30 containers: FOLIOT_CONTAINERS=1 or `make compose-test` permits it"
    for command in (("docker", "info"), ("docker", "compose", "version")):
        try:
            subprocess.run(command, capture_output=True, check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            return f"no Docker engine with compose: {error}"
    return ""
