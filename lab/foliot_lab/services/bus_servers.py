"""The lab's NATS servers: one, or a cluster of three, each in its own place of the frontend, with its own store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from foliot.runtime.supervisor import nats_server
from foliot_lab.fabric.namespaces import Entering

if TYPE_CHECKING:
    from foliot.runtime.supervisor import ProcessSpec
    from foliot_lab.fabric.fabric import Fabric
    from foliot_lab.scenario.topology import FabricPlan
    from foliot_lab.services.deployment import Desk

PORT = 4222
_CLUSTER_PORT = 6222


def address(plan: FabricPlan) -> str:
    """The address of the bus: ``host:port``, with commas between those of a cluster."""
    return ",".join(f"{plan.front(name)}:{PORT}" for name in plan.bus_servers)


def specs(fabric: Fabric, desk: Desk) -> tuple[ProcessSpec, ...]:
    """The processes to be kept running."""
    return tuple(_spec(name, fabric, desk) for name in fabric.plan.bus_servers)


def _spec(name: str, fabric: Fabric, desk: Desk) -> ProcessSpec:
    host = fabric.plan.front(name)
    store, keys = str(desk.folder / "store" / name), str(desk.keys / "server" / "server.conf")
    spec = nats_server(store, host=host, port=PORT, keys=keys, log_file=str(desk.log(name)))
    others = [fabric.plan.front(other) for other in fabric.plan.bus_servers]
    clustered = (
        "--server_name", name, "--cluster_name", "lab", "--cluster", f"nats://{host}:{_CLUSTER_PORT}",
        "--routes", ",".join(f"nats://{other}:{_CLUSTER_PORT}" for other in others),
    )  # fmt: skip
    arguments = (*spec.arguments, *clustered) if len(others) > 1 else spec.arguments
    return msgspec.structs.replace(spec, name=name, arguments=arguments, setup=Entering(fabric.namespace(name)))
