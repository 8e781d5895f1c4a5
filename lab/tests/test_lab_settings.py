"""What a lab writes into its services' settings files."""

from __future__ import annotations

import tomllib

import pytest

from foliot.node.addressing import describe
from foliot.settings import NodeSettings
from foliot_lab.scenario.spec import FabricSpec
from foliot_lab.scenario.topology import CENTRAL, plan
from foliot_lab.services import deployment

SERVICES = {"extensions.modules": ["toy"], "extensions.toy.least": 3, "detector.calm_s": 0.1}
EXTENSIONS = {"modules": ["toy"], "toy": {"least": 3}}


@pytest.fixture
def written(tmp_path):
    """The settings file of a process, as it reads it."""
    desk = deployment.desk(tmp_path)
    nodes = (deployment.node_settings(plan(FabricSpec(hosts=2, rails=1), 7), "node0"),)
    deployment.write_configs(nodes, SERVICES, desk, deployment.Addresses("127.0.0.1:4222", "127.0.0.1:8470"))
    return lambda process: tomllib.loads(desk.config(process).read_text())


@pytest.mark.parametrize("process", [*CENTRAL, "node0/probe", "node0/agent", "reader"])
def test_everybody_is_told_of_the_extensions(written, process):
    """Services, and whoever watches the lab's bus by hand; each with the tables of the modules."""
    assert written(process)["extensions"] == EXTENSIONS


def test_the_lab_loads_what_its_services_load():
    """From the scenario, without other settings; nothing where it names none."""
    assert deployment.extensions(SERVICES) == {"extensions": EXTENSIONS}
    assert deployment.extensions({"detector.calm_s": 0.1}) == {"extensions": {}}


def test_a_fabric_may_have_64_entropies():
    """Each node has these source ports, and an address for each; by default it has as many as Foliot's own default."""
    few, many = (
        describe(deployment.node_settings(plan(FabricSpec(hosts=2, rails=1, **keys), 7), "node1")).nics[0]
        for keys in ({}, {"entropies": 64})
    )
    assert few.entropies == NodeSettings(name="", index=0, nics=()).entropies
    assert many.entropies == tuple(range(49_200, 49_264))
    assert few.path_addresses == many.path_addresses[:4]
