"""How a worker ends the connections of its group, meets others, and hears of orders."""

from __future__ import annotations

import importlib.util
import json
import os
import resource
import socket
import threading

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("make train installs PyTorch", allow_module_level=True)


def setup_module():
    """Imports PyTorch, which takes seconds: where these tests run, and not wherever tests are collected."""
    global meeting_module, GroupSockets, MeetingError, OwnStore, meeting, wait_for_all, WorkerLink  # noqa: PLW0603 - as an import does
    from foliot.torch import meeting as meeting_module  # noqa: PLC0415 - see above
    from foliot.torch.group_sockets import GroupSockets  # noqa: PLC0415 - see above
    from foliot.torch.meeting import MeetingError, OwnStore, meeting, wait_for_all  # noqa: PLC0415 - see above
    from foliot.torch.worker_link import WorkerLink  # noqa: PLC0415 - see above


TIMEOUT_S = 60


@pytest.fixture
def pair():
    """Makes two ends of a TCP connection; closes them at the end."""
    made = []

    def connect():
        with socket.create_server(("127.0.0.1", 0)) as server:
            ends = socket.create_connection(server.getsockname()), server.accept()[0]
        made.extend(ends)
        for end in ends:
            end.settimeout(TIMEOUT_S)
        return ends

    yield connect
    for end in made:
        end.close()


def test_connections_of_the_group_end_and_no_others(pair):
    """What was there before and what came after goes on; who waits in one of the group's is freed."""
    before = pair()
    sockets = GroupSockets(0)
    own = pair()
    sockets.formed(but_ports=set())
    after = pair()
    heard = []
    waiting = threading.Thread(target=lambda: heard.append(own[1].recv(1)))
    waiting.start()

    sockets.shut_down()

    waiting.join(TIMEOUT_S)
    assert heard == [b""]
    for first, second in (before, after):
        first.send(b"x")
        assert second.recv(1) == b"x"


def test_a_group_that_is_being_formed_is_ended_too(pair):
    """A rank may be lost just then."""
    sockets = GroupSockets(0)
    own = pair()

    sockets.shut_down()

    assert own[1].recv(1) == b""


def test_connections_of_a_store_are_spared():
    """Others meet there already."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as other:
            sockets = GroupSockets(port)
            with server.accept()[0] as own:
                sockets.shut_down()

                own.send(b"x")
                assert other.recv(1) == b"x"


def test_a_group_is_whole_until_an_end_is_gone(pair):
    """By that a worker tells its own error from another's end."""
    sockets = GroupSockets(0)
    own = pair()
    sockets.formed(but_ports=set())
    assert sockets.is_whole

    own[0].close()

    assert not sockets.is_whole


def test_a_look_at_connections_leaves_them_as_they_are():
    """A program that sets a time limit for its sockets has them wait as before."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as own:
        socket.setdefaulttimeout(10)
        try:
            assert GroupSockets(0).is_whole is False
        finally:
            socket.setdefaulttimeout(None)
        assert os.get_blocking(own.fileno())


def test_ranks_meet_at_the_store_of_one():
    """Each goes on when all are there."""
    place = OwnStore()
    stores = [meeting(f"127.0.0.1:{place.port}", 3) for _ in range(3)]
    there = []

    def arrive(rank):
        wait_for_all(stores[rank], "there", rank, 3, within_s=TIMEOUT_S, give_up=lambda: False)
        there.append(rank)

    ranks = [threading.Thread(target=arrive, args=(rank,)) for rank in range(3)]
    for each in ranks[:2]:
        each.start()
    assert not there
    ranks[2].start()
    for each in ranks:
        each.join(TIMEOUT_S)

    assert sorted(there) == [0, 1, 2]


def test_who_does_not_come_is_named():
    """Not how many, but which."""
    place = OwnStore()
    store = meeting(f"127.0.0.1:{place.port}", 3)

    with pytest.raises(MeetingError, match=r"rank 0, 2$"):
        wait_for_all(store, "there", 1, 3, within_s=0.05, give_up=lambda: False)


def test_who_has_given_up_is_not_there():
    """The others would form a group with it, and wait in vain."""
    place = OwnStore()
    store = meeting(f"127.0.0.1:{place.port}", 3)
    for rank, missing in ((0, "rank 1$"), (1, "rank 0$")):
        with pytest.raises(MeetingError, match=missing):
            wait_for_all(store, "there", rank, 2, within_s=0.05, give_up=lambda: False)


def test_a_meeting_is_left_for_a_later_one():
    """Another rank was lost meanwhile."""
    place = OwnStore()
    store = meeting(f"127.0.0.1:{place.port}", 3)

    with pytest.raises(MeetingError, match="another order"):
        wait_for_all(store, "there", 1, 3, within_s=TIMEOUT_S, give_up=lambda: True)


@pytest.fixture
def own_name(monkeypatch):
    """Makes the meeting point a name of this host, to which its own file of names gives an address of the loopback."""
    real = socket.getaddrinfo

    def resolve(name, *more, **named):
        return real("127.0.1.1" if name == "node0" else name, *more, **named)

    monkeypatch.setattr(meeting_module.socket, "getaddrinfo", resolve)
    monkeypatch.setenv("MASTER_ADDR", "node0")
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(("by_route", "told"), [(["10.0.0.5"], "10.0.0.5"), (["127.0.0.1", "10.0.0.6"], "10.0.0.6")])
def test_others_are_not_told_an_address_of_the_loopback(own_name, monkeypatch, by_route, told):
    """Each would look for the place on its own host."""
    monkeypatch.setattr(meeting_module, "_by_route", lambda: by_route)

    assert OwnStore().place.rpartition(":")[0] == told


def test_without_a_route_an_interface_has_the_address(own_name, monkeypatch):
    """A cluster's network may have no way out."""
    monkeypatch.setattr(meeting_module, "_by_route", list)
    monkeypatch.setattr(meeting_module, "_of_interfaces", lambda names: ["127.0.0.1", "10.0.0.7"])

    assert OwnStore().place.rpartition(":")[0] == "10.0.0.7"


def test_the_interface_of_the_ranks_connections_has_the_address(own_name, monkeypatch):
    """The one that Gloo is told, or NCCL."""
    monkeypatch.setattr(meeting_module, "_by_route", lambda: ["10.0.0.5"])
    monkeypatch.setattr(meeting_module.socket, "if_nameindex", lambda: [(1, "lo"), (2, "docker0"), (3, "eth1")])
    monkeypatch.setattr(meeting_module, "_of_interfaces", lambda names: [f"10.1.0.{len(name)}" for name in names])
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "^docker,=eth")

    assert OwnStore().place.rpartition(":")[0] == "10.1.0.4"


def test_an_interface_has_the_address_that_the_kernel_says():
    """One without is left out."""
    assert [*meeting_module._of_interfaces(["lo", "none"])] == ["127.0.0.1"]


@pytest.mark.parametrize("address", ["localhost", "127.0.0.1", "::1"])
def test_a_job_of_one_host_meets_there(monkeypatch, address):
    """What is the loopback by its name stays so, and IPv6 is as good."""
    if address == "::1" and not socket.has_dualstack_ipv6():
        pytest.skip("this host has no IPv6")
    monkeypatch.setenv("MASTER_ADDR", address)
    place = OwnStore()
    store = meeting(place.place, 1)
    store.set("there", "")

    assert place.place.rpartition(":")[0] == ("::1" if address == "::1" else "127.0.0.1")
    assert store.check(["there"])


class Agent:
    """The agent's end of the socket."""

    def __init__(self, path):
        self.listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listening.settimeout(TIMEOUT_S)
        self.listening.bind(str(path))
        self.listening.listen()
        self.end = None

    def accept(self):
        """Takes a connection."""
        self.end, _ = self.listening.accept()
        self.end.settimeout(TIMEOUT_S)

    def hear(self, **what):
        """Waits for a packet that says something."""
        while True:
            said = json.loads(self.end.recv(1 << 16))
            if said.items() >= what.items():
                return said

    def order(self, generation, **other):
        """Sends an order."""
        said = {
            "kind": "replace",
            "generation": generation,
            "rank": 1,
            "size": 2,
            "meet": "a:1",
            "at_step": 0,
            "cause": "dead",
        }
        self.end.send(json.dumps(said | other).encode())


@pytest.fixture
def agent(tmp_path):
    """The agent's end."""
    made = Agent(tmp_path / "ranks")
    yield made
    made.listening.close()
    if made.end is not None:
        made.end.close()


@pytest.fixture
def link(agent, tmp_path):
    """A worker's end, and the orders that it obeyed."""
    obeyed = []
    made = WorkerLink("job", str(tmp_path / "ranks"), obeyed.append)
    made.say(rank=1, stage="training")
    made.start()
    agent.accept()
    yield made, obeyed
    made.end()


def test_the_agent_is_told_and_orders_are_heard(agent, link):
    """The process obeys before anybody else hears of it."""
    made, obeyed = link
    agent.hear(job="job", process=made.process, stage="training")
    agent.order(3)

    order = made.wait_for_order(above=2, within_s=TIMEOUT_S)

    assert (order.generation, order.rank, order.cause) == (3, 1, "dead")
    assert obeyed == [order]
    made.say(stage="forming")
    agent.hear(stage="forming")


def test_an_older_order_and_what_is_none_change_nothing(agent, link):
    """Packets of an agent that is newer, or of none."""
    made, obeyed = link
    agent.order(3)
    agent.order(2)
    for packet in (b"[]", b"{", b'{"kind":"replace"}', b'{"kind":"later"}', b'{"kind":"replace","generation":"x"}'):
        agent.end.send(packet)
    agent.order(4)

    assert made.wait_for_order(above=3, within_s=TIMEOUT_S).generation == 4
    assert [each.generation for each in obeyed] == [3, 4]


def test_an_agent_that_starts_anew_is_found_again(agent, link):
    """And told all that is to be known."""
    made, _ = link
    agent.hear(stage="training")
    agent.end.close()
    agent.accept()  # the worker's second connection

    assert agent.hear(stage="training")["process"] == made.process


def test_nobody_waits_for_an_order_for_ever(link):
    """Who waits in vain goes on by itself."""
    made, _ = link

    assert made.wait_for_order(above=0, within_s=0.01) is None


def test_a_worker_listens_that_has_many_files_open():
    """Files beyond the 1,024 that select(2) takes."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(2_048, limits[1]), limits[1]))
    files = [os.open("/dev/null", os.O_RDONLY) for _ in range(1_030)]
    try:
        link = WorkerLink("job", "/nowhere", lambda _: None)
        os.eventfd_write(link._wake, 1)
        link._listen()
    finally:
        for file in files:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
