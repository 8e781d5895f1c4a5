"""Which routers the links of paths join.

No packet names a router. But where one link of a path ends, the next begins, and each end of a link is one router or
NIC. So ends that some path puts together are of one router. The two directions of a cable are found by its addresses,
if these are a pair (RFC 3021) and one of its ends is known to be one router anyway.

That takes a port's address to be its own. If a router has the same one for all its ports, routers before it seem to be
one, and paths seem to cross that one twice. Then nothing is said of it.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from ipaddress import IPv4Address
from typing import TYPE_CHECKING, Literal, NamedTuple

from foliot.link_map import UNNAMED, is_between_routers, link_in, link_out

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

RouterRole = Literal["leaf", "spine"]
_NICS = 2
"""So many NICs tell a router that never answers from those of other NICs."""


class Router(NamedTuple):
    """A router, by what is known of it."""

    name: str
    """The lowest of its addresses; of one that never answers, the NIC below it."""
    rails: tuple[str, ...]
    nics: tuple[str, ...]
    """Those that are cabled to it, by name."""
    addresses: tuple[str, ...]
    """Those with which it answered, the lowest first."""

    @property
    def role(self) -> RouterRole:
        """What it is."""
        return "leaf" if self.nics else "spine"


class Ends(NamedTuple):
    """Where a link begins and ends: the names of a router or NIC; empty: not known."""

    source: str
    destination: str


class RouterFinder:
    """Finds routers, in this order: of all paths `join`, then `pair`, of all paths `check`, then `name`."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        """Of links. The ends of link `n` are `2 * n` and `2 * n + 1`."""
        self._parents: list[int] = []
        """Per end, another end of the same router, or itself."""
        self._answers: dict[str, set[int]] = defaultdict(set)
        """Per NIC, the addresses with which its router answered."""
        self._rails: dict[int, set[str]] = defaultdict(set)
        self._crossed_twice: set[int] = set()
        self._routers: dict[int, Router] = {}

    def join(self, source: str, links: tuple[str, ...], first: int) -> None:
        """Takes the links of a path.

        Parameters:
            source: the NIC where it begins.
            links: as `LinkMap` has them.
            first: the address with which its first router answered; 0: it did not.
        """
        if first:
            self._answers[source].add(first)
        for link in links:
            if link != UNNAMED:
                self._begin(link)
        for one, following in itertools.pairwise(links):
            if one != UNNAMED != following:
                self._unite(self._end(one), self._begin(following))

    def pair(self) -> Iterator[None]:
        """Joins the two directions of each cable between routers. It pauses after each link and pair."""
        left = []
        for link in self._numbers:
            if is_between_routers(link) and link < (other := _paired(link)) and other in self._numbers:
                left.append((link, other))
            yield
        met = True
        while met:
            pairs, left, met = left, [], False
            for one, other in pairs:
                if self._meet(one, other):
                    self._unite(self._end(one), self._begin(other))
                    self._unite(self._begin(one), self._end(other))
                    met = True
                else:
                    left.append((one, other))
                yield

    def check(self, links: tuple[str, ...], rail: str) -> None:
        """Takes the links of a path again, now that all were joined. No path crosses a router twice."""
        named = [link for link in links if link != UNNAMED]
        ends = [each for link in named for each in (self._begin(link), self._end(link))][1:-1]
        crossed = [root for root, _ in itertools.groupby(map(self._root, ends))]
        for root in crossed:
            self._rails[root].add(rail)
        if len(set(crossed)) < len(crossed):
            self._crossed_twice.update(root for root in crossed if crossed.count(root) > 1)

    def name(self) -> Iterator[None]:
        """Gives all routers their names. It pauses after each link and router.

        A port from which nothing is known to go on may be of any router, so it makes none.
        """
        nics: dict[int, set[str]] = defaultdict(set)
        addresses: dict[int, set[str]] = defaultdict(set)
        passing: set[int] = set()
        for link in self._numbers:
            begin, end = self._root(self._begin(link)), self._root(self._end(link))
            if is_between_routers(link):
                addresses[end].add(link)
                passing.add(begin)
            elif link == link_out(nic := link.rpartition("/")[0]):
                nics[end].add(nic)
                addresses[end].update(str(IPv4Address(each)) for each in self._answers[nic])
            else:
                nics[begin].add(nic)
            yield
        for root in (nics.keys() | passing) - self._crossed_twice:
            if addresses[root] or len(nics[root]) >= _NICS:
                self._routers[root] = _router(nics[root], addresses[root], self._rails[root])
            yield

    def ends_of(self, link: str) -> Ends:
        """What a link joins."""
        if link not in self._numbers:
            return Ends("", "")
        nic = link.rpartition("/")[0]
        return Ends(
            nic if link == link_out(nic) else self._name_at(self._begin(link)),
            nic if link == link_in(nic) else self._name_at(self._end(link)),
        )

    def at(self, link: str) -> Iterator[Router]:
        """The routers at a link."""
        if link in self._numbers:
            found = (self._routers.get(self._root(each)) for each in (self._begin(link), self._end(link)))
            yield from filter(None, found)

    def _meet(self, one: str, other: str) -> bool:
        """Whether one of two links is known to begin where the other ends."""
        ends = ((self._end(one), self._begin(other)), (self._end(other), self._begin(one)))
        return any(self._root(end) == self._root(begin) for end, begin in ends)

    def _name_at(self, end: int) -> str:
        router = self._routers.get(self._root(end))
        return "" if router is None else router.name

    def _begin(self, link: str) -> int:
        number = self._numbers.get(link)
        if number is None:
            number = self._numbers[link] = len(self._numbers)
            self._parents += [2 * number, 2 * number + 1]
            if not is_between_routers(link):
                self._join_nic(link)
        return 2 * number

    def _end(self, link: str) -> int:
        return self._begin(link) + 1

    def _join_nic(self, link: str) -> None:
        """Where a NIC's link ends, that to it begins: its cable is one."""
        nic = link.rpartition("/")[0]
        out, into = link_out(nic), link_in(nic)
        if out in self._numbers and into in self._numbers:
            self._unite(self._end(out), self._begin(into))

    def _root(self, end: int) -> int:
        parents = self._parents
        while parents[end] != end:
            parents[end] = parents[parents[end]]
            end = parents[end]
        return end

    def _unite(self, one: int, other: int) -> None:
        self._parents[self._root(one)] = self._root(other)


def _paired(address: str) -> str:
    """The other address of a cable that has a pair of them."""
    return str(IPv4Address(int(IPv4Address(address)) ^ 1))


def _router(nics: Iterable[str], addresses: Iterable[str], rails: Iterable[str]) -> Router:
    below, answered = tuple(sorted(nics)), tuple(sorted(addresses, key=IPv4Address))
    name = answered[0] if answered else f"above {below[0]}"
    return Router(name, tuple(sorted(rails)), below, answered)
