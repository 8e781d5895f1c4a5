"""Ends the TCP connections of a process with an error at both ends, as a firewall does that forgot them."""

from __future__ import annotations

import subprocess


def reset_connections(pid: int) -> None:
    """Has the kernel end all TCP connections of a process. Those that it opens afterwards are well.

    Parameters:
        pid: 0: there is no such process, and nothing to do.

    Raises:
        OSError: the kernel cannot (`CONFIG_INET_DIAG_DESTROY`), or there is no `ss` of iproute2.
    """
    if not pid:
        return
    for source, destination in _connections(pid):
        _ss(pid, "-K", "src", source, "dst", destination)
    if left := _connections(pid):
        raise OSError(f"{len(left)} connections of the process {pid} are still there")


def _connections(pid: int) -> list[tuple[str, str]]:
    """Both ends of each, as `ss` writes them."""
    listed = _ss(pid, "-tnpH", "state", "established").splitlines()
    own = [line.split() for line in listed if f"pid={pid}," in line]
    return [(source, destination) for _, _, source, destination, *_ in own]


def _ss(pid: int, *words: str) -> str:
    """Runs `ss` in the network namespace of a process."""
    command = ["nsenter", f"--net=/proc/{pid}/ns/net", "ss", *words]
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout
    except subprocess.CalledProcessError as error:
        raise OSError(error.stderr.strip()) from error
