"""A dry run: stands in for the kernel, and records the changes that the agent's code would make.

It reads what is really there, for which it needs no privilege, and changes nothing. It leaves out what the kernel adds
by itself, such as the route that comes with an address; that goes as it came.
"""

from __future__ import annotations

import itertools
import socket
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec
from pyroute2.netlink.rtnl.ifinfmsg import IFF_UP

from foliot_agent.core.overlay_layout import Rule
from foliot_agent.kernel.devices import Devices, path_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from foliot_agent.core.route_requests import Request

Verb = Literal["add", "change", "remove"]


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One change of the kernel's state."""

    verb: Verb
    kind: str
    """`link`, `address`, `sysctl`, `rule`, `route`, `forwarding` or `neighbour`, or an actuator's own word."""
    name: str
    """The thing that is changed: a device, an address or prefix, a file of /proc/sys."""
    detail: dict[str, str | int]
    """The rest of it, by iproute2's words."""

    def __str__(self) -> str:
        """One line for a person."""
        words = " ".join(f"{key} {value}" for key, value in self.detail.items())
        return f"{self.verb:<7}{self.kind:<11}{self.name}  {words}".rstrip()


class _PresentRoute(NamedTuple):
    """What a route has that the agent sets."""

    gateway: str
    device: int
    """Its index."""
    source: str
    features: int


class DryRun(Devices):
    """Stands for an `AsyncIPRoute`, a `RouteSocket` and the devices of this network namespace.

    Parameters:
        netlink: an `AsyncIPRoute`, which is only read.
    """

    def __init__(self, netlink: Any) -> None:
        self._netlink = netlink
        self.changes: list[Change] = []
        """The changes that would have been made so far, in order."""
        self._planned: dict[str, int] = {}
        self._numbers = itertools.count(-1, -1)  # no real device has a negative one
        self._entries: dict[str, frozenset[tuple[Any, ...]]] = {}
        self._routes: dict[int, dict[str, _PresentRoute]] = {}

    # -- devices ------------------------------------------------------------------------------------------------------

    def index(self, name: str) -> int:
        """See `Devices`; a device that would have been made has a number too."""
        return self._planned[name] if name in self._planned else super().index(name)

    def setting(self, family: str, device: str, key: str) -> str | None:
        """See `Devices`; a device that would have been made has the default settings."""
        return super().setting(family, "default" if device in self._planned else device, key)

    def set(self, family: str, device: str, key: str, value: str) -> None:
        """Records what would be set."""
        before = self.setting(family, device, key) or ""
        self._note("change", "sysctl", str(path_of(family, device, key)), {"from": before, "to": value})

    # -- netlink, by pyroute2's names ---------------------------------------------------------------------------------

    async def link(self, verb: str, **what: Any) -> AsyncIterator[Any]:
        """As `AsyncIPRoute.link`."""
        if verb == "dump":
            return await self._read("link", what)
        if verb == "add":
            self._add_link(what)
        elif verb == "del":
            name = self._name(what["index"])
            self._planned[name] = next(self._numbers)
            self._note("remove", "link", name, {})
        else:
            await self._set_link(what)
        return _nothing()

    async def addr(self, verb: str, **what: Any) -> AsyncIterator[Any]:
        """As `AsyncIPRoute.addr`."""
        if verb == "dump":
            return _nothing() if what["index"] < 0 else await self._read("addr", what)
        address = f"{what['address']}/{what['prefixlen']}"
        self._note(_verb(verb), "address", address, {"dev": self._name(what["index"])})
        return _nothing()

    async def rule(self, verb: str, **what: Any) -> AsyncIterator[Any]:
        """As `AsyncIPRoute.rule`."""
        if verb == "dump":
            return await self._read("rule", what)
        detail = {"priority": what["priority"], "lookup": what["table"]}
        self._note(_verb(verb), "rule", f"to {what['dst']}/{what['dst_len']}", detail)
        return _nothing()

    async def route(self, verb: str, **what: Any) -> AsyncIterator[Any]:
        """As `AsyncIPRoute.route`."""
        if verb == "dump":
            return await self._read("route", what)
        detail: dict[str, str | int] = {"table": what["table"]}
        present = await self._present_route(what["table"], what["dst"])
        if verb == "replace":
            device = self._name(what["oif"])
            detail |= {"via": what["gateway"], "dev": device, "src": what["prefsrc"]}
            features = what.get("metrics", {}).get("features", 0)
            detail |= {"features": "tcp_usec_ts"} if features else {}
            if present == (what["gateway"], what["oif"], what["prefsrc"], features):
                return _nothing()
        self._note("change" if verb == "replace" and present else _verb(verb), "route", what["dst"], detail)
        return _nothing()

    async def change(self, requests: Sequence[Request]) -> list[int]:
        """As `RouteSocket.change`."""
        for request in requests:
            what = request.what
            if isinstance(what, Rule):
                address, _, length = what.prefix.partition("/")
                verb = "add" if request.verb == "put" else "del"
                await self.rule(verb, priority=what.priority, dst=address, dst_len=int(length), table=what.table)
            elif request.verb == "put":
                await self.route(
                    "replace", dst=what.destination, table=what.table, gateway=what.gateway, oif=request.device,
                    prefsrc=what.source, metrics={"features": request.features},
                )  # fmt: skip
            else:
                await self.route("del", dst=what.destination, table=what.table)
        return [0] * len(requests)

    async def fdb(self, verb: str, **what: Any) -> None:
        """As `AsyncIPRoute.fdb`."""
        if verb != "replace" or not await self._is_there(what, "fdb"):
            detail = {"dst": what["dst"], "dev": self._name(what["ifindex"])}
            self._note(_verb(verb), "forwarding", what["lladdr"], detail)

    async def neigh(self, verb: str, **what: Any) -> None:
        """As `AsyncIPRoute.neigh`."""
        if verb != "replace" or not await self._is_there(what, "neigh", family=socket.AF_INET):
            detail = {"lladdr": what["lladdr"], "dev": self._name(what["ifindex"])}
            self._note(_verb(verb), "neighbour", what["dst"], detail)

    # -- inside -------------------------------------------------------------------------------------------------------

    async def _read(self, kind: str, what: dict[str, Any]) -> AsyncIterator[Any]:
        found: AsyncIterator[Any] = await getattr(self._netlink, kind)("dump", **what)
        return found

    def _add_link(self, what: dict[str, Any]) -> None:
        name = what["ifname"]
        self._planned[name] = next(self._numbers)
        detail: dict[str, str | int] = {"type": what["kind"]}
        if what["kind"] == "vxlan":
            detail |= {
                "id": what["vxlan_id"],
                "local": what["vxlan_local"],
                "dev": self._name(what["vxlan_link"]),
                "srcport": what["vxlan_port_range"]["low"],
                "dstport": what["vxlan_port"],
                **_class_of(what),
                "address": what["address"],
            }
        self._note("add", "link", name, detail)
        if "peer" in what:
            peer = what["peer"]["ifname"]
            self._planned[peer] = next(self._numbers)
            self._note("add", "link", peer, {"type": what["kind"], "peer": name})

    async def _set_link(self, what: dict[str, Any]) -> None:
        wanted = {key: what[key] for key in ("state", "mtu") if key in what} | _class_of(what)
        name = self._name(what["index"])
        if what["index"] > 0:
            for link in await self._netlink.link("get", index=what["index"]):
                present = {"state": "up" if link["flags"] & IFF_UP else "down", "mtu": link.get_attr("IFLA_MTU")}
                wanted = {key: value for key, value in wanted.items() if present.get(key) != value}
        if wanted:
            self._note("change", "link", name, wanted)

    # Whole tables are read once each: they have entries for every node of the fleet, and a rehearsal changes none.

    async def _is_there(self, what: dict[str, Any], kind: str, **which: Any) -> bool:
        if kind not in self._entries:
            self._entries[kind] = frozenset(
                [
                    (entry["ifindex"], entry.get_attr("NDA_DST"), entry.get_attr("NDA_LLADDR"), entry["state"])
                    async for entry in await getattr(self._netlink, kind)("dump", **which)
                ]
            )
        return tuple(what[key] for key in ("ifindex", "dst", "lladdr", "state")) in self._entries[kind]

    async def _present_route(self, table: int, destination: str) -> _PresentRoute | None:
        if table not in self._routes:
            self._routes[table] = {
                route.get_attr("RTA_DST"): _present(route)
                async for route in await self._netlink.route("dump", family=socket.AF_INET, table=table)
                if route.get_attr("RTA_TABLE") == table
            }
        return self._routes[table].get(destination)

    def _name(self, index: int) -> str:
        if index > 0:
            return socket.if_indextoname(index)
        return next(name for name, number in self._planned.items() if number == index)

    def _note(self, verb: Verb, kind: str, name: str, detail: dict[str, str | int]) -> None:
        self.changes.append(Change(verb=verb, kind=kind, name=name, detail=detail))


def _present(route: Any) -> _PresentRoute:
    gateway, index, source, metrics = (
        route.get_attr(f"RTA_{name}") for name in ("GATEWAY", "OIF", "PREFSRC", "METRICS")
    )
    return _PresentRoute(gateway, index, source, (metrics and metrics.get_attr("RTAX_FEATURES")) or 0)


def _class_of(what: dict[str, Any]) -> dict[str, str | int]:
    """What a VXLAN device does with the DSCP of packets; nothing, where that is left as it is."""
    return {"tos": "inherit" if what["vxlan_tos"] == 1 else what["vxlan_tos"]} if "vxlan_tos" in what else {}


def _verb(verb: str) -> Verb:
    return "remove" if verb == "del" else "add"


async def _nothing() -> AsyncIterator[Any]:
    return
    yield
