"""Checks the kernel for the features that the lab needs, and gets the rights to use them.

As a program (`python -m foliot_lab.fabric.capabilities`) it prints each missing feature as a sentence on a line. It
exits 1 if any is missing.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Literal

from foliot_lab.fabric.iproute import IP, TC
from foliot_lab.fabric.namespaces import CLONE_NEWUSER, enter_control, unshare
from foliot_lab.fabric.sysctls import ROUTER, pin_congestion_control, set_sysctls

_ONE_THREAD = "OPENBLAS_NUM_THREADS"
# linux/capability.h
_CAP_NET_ADMIN, _CAP_SYS_ADMIN = 12, 21

_TRIALS = (
    (IP, "link add t0 type veth peer name t1", "virtual wires (CONFIG_VETH)"),
    (IP, "link set t0 up", "devices that can be set up"),
    (IP, "addr add 192.0.2.0/31 dev t0", "IPv4 addresses"),
    (IP, "link add t2 type vxlan id 1 dev t0 dstport 4789 srcport 50001 50002 nolearning", "overlays (CONFIG_VXLAN)"),
    (IP, "link add t3 type bridge", "bridges (CONFIG_BRIDGE)"),
    (TC, "qdisc add dev t0 root handle 1: tbf rate 100mbit burst 70000 limit 300000", "rates (CONFIG_NET_SCH_TBF)"),
    (TC, "qdisc add dev t0 clsact", "filters at both ends of a device (CONFIG_NET_SCH_INGRESS, CONFIG_NET_CLS_ACT)"),
    (TC, "filter add dev t0 ingress prio 1 bpf da bytecode '1,6 0 0 2'", "BPF filters (CONFIG_NET_CLS_BPF)"),
    (IP, "rule add to 198.51.100.0/24 lookup 7000 priority 7100", "routing rules (CONFIG_IP_MULTIPLE_TABLES)"),
    (
        IP,
        "route add 198.51.100.0/24 nexthop via 192.0.2.1 dev t0 weight 1 nexthop dev t0 weight 1",
        "multipath routes (CONFIG_IP_ROUTE_MULTIPATH)",
    ),
)
"""The features that the lab builds with. Each is tried for real, in order: later ones use the devices of earlier
ones."""


class KernelError(RuntimeError):
    """This process cannot get the rights that the lab needs; the message says what would help."""


def shed_threads() -> None:
    """Starts this program anew without the threads of numpy's linear algebra, which start when numpy is imported.

    A process can make and join a user namespace only with a single thread (user_namespaces(7)). Call this first of all:
    the process loses all that it has done so far.
    """
    if len([*Path("/proc/self/task").iterdir()]) > 1 and os.environ.get(_ONE_THREAD) != "1":
        os.environ[_ONE_THREAD] = "1"
        os.execv("/proc/self/exe", [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - it is this very program


def enter() -> Literal["root", "user namespace"]:
    """Give this process the rights to make namespaces: root has them, anyone else becomes root of a user namespace.

    Cannot be undone, and works only while the process has a single thread: see `shed_threads`.

    Raises:
        KernelError: neither is to be had.
    """
    if is_privileged():
        return "root"
    user, group = os.geteuid(), os.getegid()
    try:
        unshare(CLONE_NEWUSER, "making a user namespace")
        # Without giving up setgroups, the kernel lets nobody but root map a group (user_namespaces(7)).
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    except OSError as error:
        raise KernelError(
            f"the lab needs root, or a user namespace, and the kernel permits this user neither ({error}). Run it as "
            "root,"
            f" or allow user namespaces: {_user_namespace_switches()}"
        ) from error
    return "user namespace"


def missing() -> list[str]:
    """The features that the kernel or the machine lacks for the lab, in sentences; empty if all is there.

    A child process with namespaces of its own tries everything for real. This process does not change.
    """
    done = subprocess.run(
        [sys.executable, "-m", "foliot_lab.fabric.capabilities"], capture_output=True, text=True, check=False
    )
    found = done.stdout.splitlines()
    if done.returncode not in {0, 1}:
        found.append(f"Trying what the kernel allows failed: {done.stderr.strip()}")
    return found


def try_all() -> list[str]:
    """Tries the same as `missing` in this very process, which then is in other namespaces and of no further use."""
    found = [f"There is no {name} command: install iproute2." for name, path in (("ip", IP), ("tc", TC)) if not path]
    try:
        enter()
        enter_control()
    except KernelError as error:
        return [*found, _sentence(str(error))]
    except OSError as error:
        return [*found, _sentence(f"the kernel permits no network namespaces: {error}")]
    if found:
        return found
    for tool, arguments, what in _TRIALS:
        done = subprocess.run([tool, *shlex.split(arguments)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            found.append(f"The kernel lacks {what}: {' '.join(done.stderr.split())}")
    return found + _settings_missing()


def _settings_missing() -> list[str]:
    found = []
    for name, value in {**ROUTER, "net/ipv4/fib_multipath_hash_seed": "1"}.items():
        try:
            set_sysctls({name: value})
        except OSError as error:
            found.append(f"The kernel lacks the setting {name.replace('/', '.')} = {value}: {error.strerror}.")
    try:
        pin_congestion_control()
    except OSError as error:
        found.append(f"The kernel lets a namespace choose no TCP congestion control: {error.strerror}.")
    return found


def is_privileged() -> bool:
    """Whether this process may make namespaces as it is."""
    lines = Path("/proc/self/status").read_text().splitlines()
    held = int(next(line for line in lines if line.startswith("CapEff:")).split()[1], 16)
    return all(held >> capability & 1 for capability in (_CAP_NET_ADMIN, _CAP_SYS_ADMIN))


def _user_namespace_switches() -> str:
    switches = {
        "user/max_user_namespaces": "0",
        "kernel/unprivileged_userns_clone": "0",
        "kernel/apparmor_restrict_unprivileged_userns": "1",
    }
    shut = [
        name.replace("/", ".")
        for name, value in switches.items()
        if (path := Path("/proc/sys", name)).exists() and path.read_text().strip() == value
    ]
    return f"the setting {' and '.join(shut)} forbids them" if shut else "no setting known to the lab forbids them"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"


def _main() -> int:
    found = try_all()
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(_main())
