"""What rtnetlink says is what iproute2 says."""

from __future__ import annotations

import ast
import asyncio
import errno
import socket
import struct
import subprocess
import sys
import textwrap

import pytest

from foliot.node import rtnetlink

SAME = textwrap.dedent("""
    import asyncio, json, subprocess
    from foliot.node import rtnetlink

    def ip(words, text=""):
        done = subprocess.run(["ip", *words.split()], input=text, text=True, check=True, capture_output=True)
        return done.stdout

    ip("-batch -", "".join(f"link add near{n} mtu {1400 + n} type veth peer far{n}\\nlink set near{n} up\\n" for n in range(60)))
    ip("-batch -", "".join(f"addr add 10.9.{n}.1/24 dev near{n}\\n" for n in range(60)))
    ip("addr add 10.10.0.1 peer 10.10.0.2 dev near0")
    links = {each["ifname"]: each for each in json.loads(ip("-json link show"))}
    wanted = {(name, each["ifindex"], each["mtu"], "UP" in each["flags"]) for name, each in links.items()}
    found = {
        (each.name, each.index, each.mtu, each.admin_up)
        for each in asyncio.run(rtnetlink.links())
    }
    addresses = {
        (each["ifindex"], address["local"])
        for each in json.loads(ip("-json -4 addr show"))
        for address in each["addr_info"]
    }
    told = set(asyncio.run(rtnetlink.addresses()))
    print((found == wanted, len(found), told == addresses, len(told)))
""")


@pytest.mark.net
def test_many_links_and_their_addresses():
    """Names, indexes, sizes, states; of an address with a peer, the own one. They take several messages."""
    done = subprocess.run(
        ["unshare", "--net", "--map-root-user", sys.executable, "-c", SAME], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert ast.literal_eval(done.stdout) == (True, 121, True, 61)


async def test_what_the_kernel_refuses_is_an_error():
    """A question that it does not know."""
    with pytest.raises(OSError, match="not supported") as refused:
        await rtnetlink._dump(9_998)
    assert refused.value.errno == errno.EOPNOTSUPP


@pytest.mark.parametrize(("flags", "found"), [(0, []), (0x10, None)], ids=["whole", "interrupted"])
async def test_a_dump_during_which_things_changed_is_none(flags, found):
    """The kernel says so by a flag (NLM_F_DUMP_INTR): a device may be missing that is there."""
    asked, kernel = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with asked, kernel:
        asked.setblocking(False)
        kernel.send(struct.pack("=IHHII", 20, 3, flags, 0, 0) + bytes(4))  # NLMSG_DONE
        async with asyncio.timeout(10):
            assert await rtnetlink._ask(asked, 18) == found  # RTM_GETLINK
