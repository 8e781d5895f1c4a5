"""The RDMA device's own count of lost links, from a sysfs as a real H100 host has it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from foliot_probe.io.rdma_counters import LinkDowned

H100 = Path(__file__).parent / "h100-sysfs"


@pytest.fixture
def sysfs(tmp_path):
    """Network devices ib0 and ib1 on mlx5_0 and mlx5_1, and one without an RDMA device."""
    for device, rdma in (("ib0", "mlx5_0"), ("ib1", "mlx5_1")):
        shutil.copytree(H100 / rdma, tmp_path / "class/net" / device / "device/infiniband" / rdma)
        (tmp_path / "class/net" / device / "dev_port").write_text("0\n")
    (tmp_path / "class/net/eth0").mkdir()
    return tmp_path


def port(sysfs, device):
    """The folder of the device's ports."""
    (found,) = (sysfs / "class/net" / device / "device/infiniband").glob("*/ports")
    return found


def test_the_count_of_the_device_below(sysfs):
    """As the files of a real host have it: one port has lost none, the other stands at the end of 8 bits."""
    reader = LinkDowned(sysfs)
    assert [reader.read("ib0", 2), reader.read("ib1", 3)] == [{"link_downed": 0}, {"link_downed": 255}]


def test_a_device_without_one_has_no_count(sysfs):
    """Nor one that is not there, nor a host without sysfs."""
    reader = LinkDowned(sysfs)
    assert reader.read("eth0", 4) == reader.read("eth9", 5) == LinkDowned(sysfs / "none").read("ib0", 2) == {}


def test_each_reading_is_fresh(sysfs):
    """The file is remembered, not what stands in it."""
    reader = LinkDowned(sysfs)
    reader.read("ib0", 2)
    (port(sysfs, "ib0") / "1/counters/link_downed").write_text("7\n")
    assert reader.read("ib0", 2) == {"link_downed": 7}


def test_of_two_ports_on_one_card_each_reads_its_own(sysfs):
    """The kernel numbers network devices of a card from 0, RDMA ports from 1."""
    shutil.copytree(port(sysfs, "ib0") / "1", port(sysfs, "ib0") / "2")
    (port(sysfs, "ib0") / "2/counters/link_downed").write_text("9\n")
    reader = LinkDowned(sysfs)
    assert reader.read("ib0", 2) == {"link_downed": 0}
    (sysfs / "class/net/ib0/dev_port").write_text("1\n")
    assert reader.read("ib0", 8) == {"link_downed": 9}, "another index: the files are looked for anew"


@pytest.mark.parametrize("text", ["N/A (no PMA)\n", ""])
def test_what_is_no_number_is_no_count(sysfs, text):
    """As of a device that cannot be asked."""
    (port(sysfs, "ib0") / "1/counters/link_downed").write_text(text)
    assert LinkDowned(sysfs).read("ib0", 2) == {}


def test_a_device_that_is_being_removed_has_no_count(sysfs):
    """And has one again under its new index."""
    reader = LinkDowned(sysfs)
    reader.read("ib1", 3)
    shutil.move(sysfs / "class/net/ib1", sysfs / "kept")
    assert reader.read("ib1", 3) == {}
    shutil.move(sysfs / "kept", sysfs / "class/net/ib1")
    assert reader.read("ib1", 9) == {"link_downed": 255}
