"""Which devices are the host's management."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from foliot_probe.io.management_nics import ManagementNics, default_devices

HEADER = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
DEFAULT = "eth0\t00000000\t0100000A\t0003\t0\t0\t100\t00000000\t0\t0\t0\n"
OTHERS = "eth2\t0000100A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\nodd line\n"


@pytest.mark.parametrize(
    ("text", "devices"),
    [
        (HEADER + DEFAULT + OTHERS, {"eth0"}),
        (HEADER + OTHERS, set()),
        (HEADER + DEFAULT + DEFAULT.replace("eth0", "eth1"), {"eth0", "eth1"}),
        (HEADER + DEFAULT.replace("0003", "0002"), set()),  # not up
        (HEADER + DEFAULT.replace("\t00000000\t0\t0\t0\n", "\t00000080\t0\t0\t0\n"), set()),  # 0.0.0.0/1
        ("", set()),
    ],
)
def test_default_routes_are_found_in_the_kernels_table(text, devices):
    """As /proc/net/route has it; other lines are left out."""
    assert default_devices(text) == devices


def test_a_default_route_that_went_with_its_device_is_remembered(tmp_path):
    """An administrator's down flushes it, and just then it must be known whose it was; a new one replaces it."""
    routes = tmp_path / "route"
    management = ManagementNics({}, routes)
    assert management.devices() == set()
    for text, devices in (
        (HEADER + DEFAULT, {"eth0"}),
        (HEADER + OTHERS, {"eth0"}),
        (HEADER + DEFAULT.replace("eth0", "eth5"), {"eth5"}),
    ):
        routes.write_text(text)
        assert management.devices() == devices


@pytest.mark.parametrize(
    "url", ["nats://127.0.0.1:4222", "127.0.0.1", "nats://[::1]:4222", "nats://no.such.host.invalid:4222", "nats://:x"]
)
async def test_a_bus_on_the_host_itself_or_nowhere_tells_nothing(tmp_path, url):
    """Loopback is nobody's frontend."""
    management = ManagementNics({"lo": "127.0.0.1"}, tmp_path / "route")
    await management.find_frontend(url)
    assert management.devices() == set()


CODE = textwrap.dedent("""
    import asyncio, subprocess
    from foliot_probe.io.management_nics import ManagementNics

    def ip(line):
        subprocess.run(["ip", *line.split()], check=True)

    for number, name in enumerate(("front", "rail")):
        ip(f"link add {name} type veth peer far{number}")
        ip(f"addr add 10.{16 + number}.0.2/24 dev {name}")
        ip(f"link set {name} up")
        ip(f"link set far{number} up")

    async def main():
        management = ManagementNics({"front": "10.16.0.2", "rail": "10.17.0.2"})
        said = [sorted(management.devices())]
        await management.find_frontend("nats://10.17.0.9:4222")
        said.append(sorted(management.devices()))
        await management.find_frontend("tls://10.99.0.1:4222, nats://10.16.0.9:4222")
        said.append(sorted(management.devices()))
        ip("route add default via 10.17.0.1")
        said.append(sorted(management.devices()))
        ip("link set rail down")
        said.append(sorted(management.devices()))
        print(said)

    asyncio.run(main())
""")


@pytest.mark.net
def test_the_way_to_the_bus_and_the_default_route_of_a_real_kernel():
    """Of several servers the first that there is a way to; a route stays in mind as its device is set down."""
    told = subprocess.run(
        ["unshare", "--net", "--map-root-user", sys.executable, "-c", CODE], capture_output=True, text=True, check=False
    )

    assert told.returncode == 0, told.stderr
    assert told.stdout.strip() == str([[], ["rail"], ["front"], ["front", "rail"], ["front", "rail"]])
