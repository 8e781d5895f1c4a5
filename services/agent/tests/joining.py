"""Hosts of a fleet that are joined and leave, each with its files below a folder of its own."""

from __future__ import annotations

from pathlib import Path

import forked

TOML = "etc/foliot/foliot.toml"
SECRETS = "etc/foliot/agent.env"
UNITS = "etc/systemd/system"


async def run_foliot(*arguments: str, expect: int = 0, privileged: bool = True) -> str:
    """Runs ``foliot`` where the calling thread is, and returns what it said."""
    status, said = await forked.run("foliot.cli", *arguments, privileged=privileged)
    assert status == expect, said
    return said


class Node:
    """One host of the fleet, with a folder for its files."""

    def __init__(self, fleet, index: int, root: Path) -> None:
        self.host = fleet.hosts[index]
        self.root = root
        self.url = fleet.server.settings.url
        root.mkdir()

    async def foliot(self, *arguments: str, expect: int = 0, privileged: bool = True) -> str:
        """Runs ``foliot`` inside and returns what it said."""
        with self.host.entered():
            return await run_foliot(*arguments, expect=expect, privileged=privileged)

    def set_sysctl(self, name: str, value: str) -> None:
        """Writes a setting below /proc/sys/net."""
        with self.host.entered():
            (Path("/proc/sys/net") / name).write_text(value)

    async def join(self, *arguments: str, expect: int = 0, privileged: bool = True) -> str:
        """Joins."""
        asked = ("node", "join", self.url, "--root", str(self.root), *arguments)
        return await self.foliot(*asked, expect=expect, privileged=privileged)

    async def leave(self, *arguments: str, expect: int = 0) -> str:
        """Leaves, with the kernel's part of its namespace."""
        return await self.foliot("node", "leave", "--root", str(self.root), "--kernel", *arguments, expect=expect)

    def seen(self) -> dict[str, object]:
        """The host, as ``ip -json`` shows it, byte for byte, and its files."""
        asked = ("link", "addr", "route show table all", "rule", "neigh show nud permanent", "nexthop")
        with self.host.entered():
            sysctls = {
                str(path): path.read_text()
                for family in ("ipv4", "ipv6")
                for path in Path(f"/proc/sys/net/{family}").rglob("*")
                if path.is_file()
                and path.stat().st_mode & 0o400
                and "stable_secret" not in path.name
                and not path.name.startswith(_OF_THE_MACHINE)
            }
        return {
            **{what: self.host.ip(what, options=("-json",)) for what in asked},
            "fdb": self.host.bridge("fdb"),
            "sysctls": sysctls,
            "files": self.seen_files(),
        }

    def seen_files(self) -> dict[str, object]:
        """What lies in its folder, byte for byte."""
        return {
            str(path): path.readlink()
            if path.is_symlink()
            else ((found := path.stat()).st_mode, found.st_uid, found.st_gid, path.is_dir() or path.read_bytes())
            for path in self.root.rglob("*")
        }


_OF_THE_MACHINE = ("tcp_available_", "tcp_allowed_")
"""Settings that say what the whole machine has loaded, which a lab beside the test may change."""
RAILS = ("--rail", "rail0=rail0", "--rail", "rail1=rail1")
