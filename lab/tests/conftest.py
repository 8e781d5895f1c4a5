"""Fabrics; and two hosts with a wire on each of two rails, and service addresses that survive either."""

import subprocess

import pytest

from foliot_lab.fabric import capabilities
from foliot_lab.fabric.fabric import Fabric
from foliot_lab.fabric.iproute import IP
from foliot_lab.fabric.namespaces import Namespace, inside
from foliot_lab.measure.outages import End
from foliot_lab.scenario.topology import plan

ADDRESSES = {"node0": "10.200.0.1", "node1": "10.200.0.2"}


class Wires:
    """Both hosts and their two wires, called as the overlay's devices are: fo0e0 and fo1e0."""

    def __init__(self):
        self.namespaces = {name: Namespace.make(name) for name in ADDRESSES}
        self.ends = {End(name, "rail0"): address for name, address in ADDRESSES.items()}
        far = self.namespaces["node1"].fd
        for rail in (0, 1):
            # Unlike indexes at both ends: the kernel tells a loss of carrier late if they are the same.
            near, peer = f"index {100 + rail} name fo{rail}e0", f"index {200 + rail} name fo{rail}e0"
            self.ip("node0", f"link add {near} type veth peer {peer} netns /proc/self/fd/{far}", far)
        for number, (name, address) in enumerate(ADDRESSES.items()):
            self.ip(name, "link set lo up", f"addr add {address}/32 dev lo")
            for rail in (0, 1):
                self.ip(name, f"addr add 10.{rail}.0.{1 + number}/24 dev fo{rail}e0", f"link set fo{rail}e0 up")
            self.take(0, name)

    def ip(self, name, *lines):
        """Has a host run lines of the program ip; a number among them is a descriptor that they need."""
        fds = [line for line in lines if isinstance(line, int)]
        text = "".join(f"{line}\n" for line in lines if isinstance(line, str))
        with inside(self.namespaces[name]):
            subprocess.run([IP, "-batch", "-"], input=text, text=True, check=True, pass_fds=fds)

    def take(self, rail, *names):
        """Sends what goes to the other host's service address by this rail."""
        for name in names or ADDRESSES:
            (number, (_, address)) = next(
                (number, item) for number, item in enumerate(ADDRESSES.items()) if item[0] != name
            )
            source = ADDRESSES[name]
            self.ip(name, f"route replace {address}/32 via 10.{rail}.0.{1 + number} dev fo{rail}e0 src {source}")

    def cut(self, rail):
        """Takes the carrier from a wire, silently for the routes of node0: as a pulled cable does."""
        self.ip("node1", f"link set fo{rail}e0 down")

    def heal(self, rail):
        """Gives it back."""
        self.ip("node1", f"link set fo{rail}e0 up")

    def close(self):
        """Lets go of both hosts."""
        for namespace in self.namespaces.values():
            namespace.close()


@pytest.fixture
def wires():
    """Two hosts, two wires; all service traffic on rail 0."""
    if not capabilities.is_privileged():
        pytest.skip("this process may not make network namespaces")
    wires = Wires()
    yield wires
    wires.close()


@pytest.fixture
def fabric(request):
    """A fabric as the module's SPEC says, up, around a control namespace that is not this process's own."""
    if not capabilities.is_privileged():
        pytest.skip("this process may not make network namespaces")
    control = Namespace.make("control")
    built = Fabric.build(plan(request.module.SPEC, 7), control)
    yield built
    built.close()
    control.close()
