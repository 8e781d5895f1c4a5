"""Assigns services to hosts of a lab, and writes their settings. Pure, but for writing the files."""

from __future__ import annotations

import os
import random
import secrets
import time
import tomllib
from pathlib import Path  # noqa: TC003 - msgspec reads annotations at run time
from typing import TYPE_CHECKING, Any

import msgspec

from foliot.keys.keyring import Keyring
from foliot.settings import SECTIONS, BusSettings, NicSettings, NodeSettings
from foliot.text.toml_text import toml
from foliot_lab.faults.skewed_clock import TAI_NS, NicSkewSpec, Skew, SkewSpec, write_nic_clock
from foliot_lab.faults.world import write_step
from foliot_lab.scenario.spec import trained
from foliot_lab.scenario.topology import CENTRAL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from foliot_lab.scenario.spec import ClockSpec, Scenario
    from foliot_lab.scenario.topology import FabricPlan

ON_A_NODE = ("agent", "probe")
_FIRST_ENTROPY = NodeSettings(name="", index=0, nics=()).entropies[0]


class Desk(msgspec.Struct, frozen=True, kw_only=True):
    """The folder of a run, with a settings file, a skew and a log per process."""

    folder: Path
    boot: str
    """The boot identity that the hosts of this run report. Faults of two runs on one kernel must not share a name."""

    def config(self, process: str) -> Path:
        """The settings file of a process."""
        return self.folder / f"{process.replace('/', '-')}.toml"

    def log(self, process: str) -> Path:
        """The log of a process."""
        return self.folder / f"{process.replace('/', '-')}.log"

    @property
    def keys(self) -> Path:
        """The credentials for the bus."""
        return self.folder / "keys"

    def skew(self, node: str) -> Path:
        """The injected clock error of a node."""
        return self.folder / f"{node}.skew.json"

    def step(self, node: str) -> Path:
        """The sum of the steps injected into a node's clock."""
        return self.folder / f"{node}.step"

    def nic_clock(self, node: str, rail: str) -> Path:
        """What the clock in a node's NIC does wrong."""
        return self.folder / f"{node}.{rail}.phc"

    def clock_page(self, node: str) -> Path:
        """The page that a node's probe writes, for processes that read its time."""
        return self.folder / f"{node}.clock"

    def rank_socket(self, node: str) -> Path:
        """The socket on which a node's agent hears ranks of training jobs."""
        return self.folder / f"{node}.ranks"

    def kernel_log(self, node: str) -> Path:
        """The pipe that a node's agent reads as its kernel's log."""
        return self.folder / f"{node}.kmsg"

    def loop_steps(self, process: str) -> Path:
        """The file with the steps of a service's loop, see `foliot.runtime.loop_steps`."""
        return self.folder / f"{process.replace('/', '-')}.steps"

    @property
    def bytecode(self) -> dict[str, str]:
        """Variables by which interpreters keep what they have compiled, and leave no files of root's beside the code."""
        return {
            "PYTHONDONTWRITEBYTECODE": "",
            "PYTHONPYCACHEPREFIX": os.environ.get("PYTHONPYCACHEPREFIX", str(self.folder.with_name("pycache"))),
        }

    def environment(self, process: str) -> dict[str, str]:
        """The variables that a process needs beside its settings file."""
        node = process.partition("/")[0] if "/" in process else ""
        own = {
            "FOLIOT_CONFIG": str(self.config(process)),
            "FOLIOT_BOOT_ID": self.boot,
            "FOLIOT_TELEMETRY__LOOP_STEPS": str(self.loop_steps(process)),
            **self.bytecode,
        }
        if node:
            own |= {
                "FOLIOT_CLOCK_SKEW": str(self.skew(node)),
                "FOLIOT_CLOCK__PAGE": str(self.clock_page(node)),
                "FOLIOT_AGENT__RANK_SOCKET": str(self.rank_socket(node)),
                "FOLIOT_AGENT__KERNEL_LOG": str(self.kernel_log(node)),
            }
        return own


def desk(folder: Path) -> Desk:
    """A desk in a folder of its own."""
    return Desk(folder=folder, boot=f"lab-{secrets.token_hex(4)}")


def node_settings(plan: FabricPlan, node: str) -> NodeSettings:
    """The ``[node]`` section of a host."""
    nics = tuple(
        NicSettings(rail=rail, number=number, device=rail, address=plan.underlay(node, rail))
        for number, rail in enumerate(plan.rails)
    )
    ports = tuple(range(_FIRST_ENTROPY, _FIRST_ENTROPY + plan.entropies))
    return NodeSettings(name=node, index=plan.hosts.index(node), nics=nics, entropies=ports)


def write_skews(clock: ClockSpec, hosts: tuple[str, ...], desk: Desk, rails: tuple[str, ...] = ()) -> dict[str, Skew]:
    """Each host's clock error from now on, drawn from the scenario's seed and written for the host's processes.

    Parameters:
        rails: those whose NICs have clocks, where the scenario has any.
    """
    draw, start_raw_ns = random.Random(clock.seed), time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
    draw_nics = random.Random(f"{clock.seed}/nics")  # hosts are the same with NICs' clocks and without
    skews = {}
    for host in hosts:
        spec = SkewSpec(
            start_raw_ns=start_raw_ns,
            offset_ns=round(draw.uniform(-clock.offset_ms, clock.offset_ms) * 1e6),
            drift_ppb=draw.uniform(-clock.drift_ppb, clock.drift_ppb),
            wander_ppb=clock.wander_ppb,
            seed=draw.getrandbits(32),
            step_file=str(desk.step(host)),
            nics={
                rail: _nic_skew(clock, desk.nic_clock(host, rail), start_raw_ns, draw_nics)
                for rail in (rails if clock.nic_clocks else ())
            },
        )
        write_step(desk.step(host), 0)
        desk.skew(host).write_bytes(msgspec.json.encode(spec))
        skews[host] = Skew(spec)
    return skews


def _nic_skew(clock: ClockSpec, file: Path, start_ns: int, draw: random.Random) -> NicSkewSpec:
    write_nic_clock(file)
    return NicSkewSpec(
        start_ns=start_ns,
        offset_ns=TAI_NS + round(draw.uniform(-clock.offset_ms, clock.offset_ms) * 1e6),
        drift_ppb=draw.uniform(-clock.drift_ppb, clock.drift_ppb),
        wander_ppb=clock.wander_ppb,
        seed=draw.getrandbits(32),
        file=str(file),
    )


class Addresses(msgspec.Struct, frozen=True):
    """The addresses of the bus and the gateway."""

    bus: str
    """``host:port``; several, with commas between, for a cluster, which then keeps that many copies of everything."""
    gateway: str

    @property
    def url(self) -> str:
        """The URL of the bus, as settings name it."""
        return ",".join(f"nats://{server}" for server in self.bus.split(","))

    @property
    def copies(self) -> int:
        """The number of copies of everything that the bus keeps."""
        return len(self.bus.split(","))


def listener(addresses: Addresses, desk: Desk) -> BusSettings:
    """Settings for a process that watches the lab's bus and may not publish on it."""
    return BusSettings(url=addresses.url, credentials=str(desk.keys / "tools" / "reader.creds"))


def scheduler(addresses: Addresses, desk: Desk) -> BusSettings:
    """Settings for who registers jobs."""
    return BusSettings(url=addresses.url, credentials=str(desk.keys / "tools" / "scheduler.creds"))


def extensions(services: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of extensions among a scenario's settings, in the form of a settings file.

    The lab loads the same extensions as its services.
    """
    prefix = "extensions."
    own = {name.removeprefix(prefix): value for name, value in services.items() if name.startswith(prefix)}
    return tomllib.loads(toml({"extensions": own}))


def homes(chosen: Mapping[tuple[str, str, str], int]) -> dict[str, Any]:
    """The remediator's setting of homes, by dotted name; empty without any.

    Parameters:
        chosen: the index of an entropy, by source, destination and rail.
    """
    rules = [
        {"node": node, "peer": peer, "rail": rail, "via": rail, "entropy": entropy, "pinned": False}
        for (node, peer, rail), entropy in sorted(chosen.items())
    ]
    return {"remediator.placements": rules} if rules else {}


def replacing(scenario: Scenario) -> dict[str, Any]:
    """The settings, by dotted name, with which the ranks of a scenario's job are replaced; empty if they cannot be."""
    job = trained(scenario)
    if job is None or not job[1].is_replaceable:
        return {}
    # The lab's job makes no pauses: a rank that does no step hangs.
    return {"remediator.replace": "act", "remediator.replace_hung_s": 3.0}


def write_configs(
    nodes: tuple[NodeSettings, ...], services: Mapping[str, Any], desk: Desk, addresses: Addresses
) -> None:
    """Writes the credentials and settings files of all processes.

    Parameters:
        services: the scenario's settings by dotted name; ``remediator.armed`` is a setting of the agents.

    Raises:
        ValueError: a dotted name does not begin with a section.
    """
    keyring = Keyring(desk.keys, time.time)
    keyring.make()
    common: dict[str, dict[str, Any]] = {
        "bus": {"url": addresses.url, "replicas": addresses.copies},
        "telemetry": {"endpoint": f"http://{addresses.gateway}"},
        "gateway": {"bind": [addresses.gateway]},
        "agent": {"key": keyring.fleet_key, "memory": str(desk.folder / "memory")},
    }
    for name, value in services.items():
        section, _, setting = name.partition(".")
        if section not in SECTIONS or not setting:
            raise ValueError(
                f"services: {name!r} is not section.setting; the sections are {', '.join(sorted(SECTIONS))}"
            )
        home = "agent" if name == "remediator.armed" else section
        common.setdefault(home, {})[setting] = value
    for process in CENTRAL:
        desk.config(process).write_text(toml(_with_credentials(common, desk.keys / "services" / process)))
    # For a person who watches the lab's bus.
    own = {"extensions": common["extensions"]} if "extensions" in common else {}
    desk.config("reader").write_text(toml({"bus": msgspec.to_builtins(listener(addresses, desk))} | own))
    for node in nodes:
        own = _with_credentials(common, keyring.issue_node(node.name)) | {"node": msgspec.to_builtins(node)}
        for process in ON_A_NODE:
            desk.config(f"{node.name}/{process}").write_text(toml(own))


def _with_credentials(common: dict[str, dict[str, Any]], folder: Path) -> dict[str, dict[str, Any]]:
    return common | {"bus": common["bus"] | {"credentials": str(folder)}}
