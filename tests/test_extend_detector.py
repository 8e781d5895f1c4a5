"""A kind of event and its detector in one file of somebody's own: nothing of Foliot's knows it by name.

The file is `tests/toys/toy_detector.py`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from foliot.node.shard import Shard
from foliot.runtime.extensions import extend
from foliot.settings import SettingsError
from foliot.text.events import sentence
from foliot.text.messages import is_bad
from foliot_detector.core import registry
from foliot_detector.core.pipeline import Pipeline
from foliot_detector.settings import DetectorSettings
from foliot_schemas import Event, Nic, Node, PortState, decode, encode, event_kinds
from foliot_schemas.names import node_of

TOYS = Path(__file__).parent / "toys"
FOLIOT = str(Path(sys.executable).with_name("foliot"))
NODES = ("node0", "node1")


@pytest.fixture
def toy(monkeypatch):
    """Settings that name the toy, for this process and those it starts; what it registers is forgotten afterwards."""
    monkeypatch.setattr(event_kinds, "_KINDS", dict(event_kinds._KINDS))
    monkeypatch.setattr(registry, "_OF_EXTENSIONS", dict(registry._OF_EXTENSIONS))
    monkeypatch.syspath_prepend(TOYS)
    monkeypatch.setenv("PYTHONPATH", str(TOYS))
    monkeypatch.setenv("FOLIOT_EXTENSIONS__MODULES", '["toy_detector"]')
    monkeypatch.delenv("FOLIOT_CONFIG", raising=False)


def node(name):
    """A node's record, with one NIC."""
    nic = Nic(
        name=f"{name}.rail0", rail="rail0", device="eth0", address="10.0.0.1", clock=name, service_address="10.200.0.1",
        path_addresses=("100.64.0.1",), entropies=(0,),
    )  # fmt: skip
    return Node(name=name, nics=(nic,))


def port(nic, second, errors):
    """What a port says each second."""
    return PortState(
        node=node_of(nic), nic=nic, at_ns=(1_700_000_000 + second) * 1_000_000_000, carrier=True, admin_up=True,
        carrier_down_count=0, carrier_up_count=1, counters={"rx_errors": errors},
    )  # fmt: skip


def pipeline(shard=None):
    """A detector that knows two nodes."""
    made = Pipeline(DetectorSettings()) if shard is None else Pipeline(DetectorSettings(), shard)
    for name in NODES:
        made.observe(node(name))
    return made


def heard(detector, nic, *counts, after=0):
    """The events that the counts of a NIC give rise to, a second apart."""
    return [
        event for second, count in enumerate(counts) for event in detector.observe(port(nic, after + second, count))
    ]


def test_its_detector_judges_beside_foliots_own(toy):
    """From its own counters, by its own defaults; told in its own sentences, its end in another colour."""
    extend("detector")
    rising, still = heard(pipeline(), "node1.rail0", 5, 5, 5_000, 9_000, 9_001)

    assert sentence(rising) == "node1.rail0 receives broken frames (4995 in a second)"
    assert sentence(still) == "node1.rail0 receives no more broken frames"
    assert (is_bad(rising), is_bad(still)) == (True, False)
    assert still.cause == rising.id


def test_its_settings_stand_in_its_own_table(toy, monkeypatch, tmp_path):
    """And a wrong key is refused by its name at the start, as in Foliot's own."""
    config = tmp_path / "foliot.toml"
    monkeypatch.setenv("FOLIOT_CONFIG", str(config))
    config.write_text("[extensions.toy_detector]\nleast = 9_999\n")
    extend("detector")
    assert heard(pipeline(), "node1.rail0", 5, 5_000) == []

    config.write_text("[extensions.toy_detector]\nmost = 9_999\n")
    with pytest.raises(SettingsError, match=r"extensions\.toy_detector.*most"):
        extend("detector")


def test_the_shard_of_its_nic_says_it(toy):
    """By what its record says that `who` names."""
    extend("detector")
    said = {
        shard: heard(pipeline(shard), "node1.rail0", 5, 5_000) for shard in (Shard("", "node1"), Shard("node1", ""))
    }

    assert [[event.who for event in events] for events in said.values()] == [[], ["node1.rail0"]]


def test_what_an_earlier_run_began_is_ended(toy):
    """As the detector resumes every kind that it publishes."""
    extend("detector")
    (rising,) = heard(pipeline(), "node1.rail0", 5, 5_000)
    anew = pipeline()
    anew.resume(decode(encode(rising), Event))

    assert [event.state for event in heard(anew, "node1.rail0", 9_000, 9_000, after=60)] == ["still"]
    assert [kind.name for kind in event_kinds.published_by("detector")][-1] == "errors"


def test_it_may_be_registered_once(toy):
    """A second detector of one name would say everything twice."""
    extend("detector")
    with pytest.raises(SettingsError, match="there is a detector named errors already"):
        extend("detector")


def test_foliot_decode_tells_it(toy):
    """Where the settings name the module; elsewhere the message is told as it is."""
    told = Event(id="e", kind="errors", who="node1.rail0", state="rising", at_ns=1, since_ns=1, evidence={"count": 12})
    known, unknown = (
        subprocess.run([FOLIOT, "decode"], input=encode(told), env=environment, capture_output=True, check=True)
        for environment in (dict(os.environ), os.environ | {"FOLIOT_EXTENSIONS__MODULES": "[]"})
    )

    assert "node1.rail0 receives broken frames" in known.stdout.decode()
    assert "errors rising: node1.rail0" in unknown.stdout.decode()
