"""Jobs: whose flows they are, which is the slowest, and what it suffers from."""

import asyncio

import msgspec
import numpy as np
import pytest
from reflected import Reflected

from foliot import cli
from foliot_gateway.settings import GatewaySettings
from foliot_gateway.state import queries
from foliot_gateway.state.queries import NotFoundError
from foliot_gateway.state.store import Store
from foliot_schemas import (
    Drain,
    Event,
    FlowBatch,
    FlowRow,
    HopBatch,
    HopRow,
    Job,
    Nic,
    Node,
    NodePaths,
    Placement,
    WorkerBatch,
    WorkerState,
)
from foliot_schemas.subjects import DRAINS, EVENT, FLOW, INVENTORY, JOBS, WORKER
from patience import patience

S = 1_000_000_000
HALF_NS = S // 2
LINK = "10.1.0.0"


class Clock:
    """A time that stands until a test lets it pass."""

    def __init__(self):
        self.now_ns = 1_800_000_000 * S

    def __call__(self):
        """The time."""
        return self.now_ns


@pytest.fixture
def clock():
    """The gateway's time."""
    return Clock()


@pytest.fixture
def store(clock):
    """A gateway that knows four nodes and their ways."""
    store = Store(GatewaySettings(), clock)
    for index in range(4):
        store.fleet.fold_node(f"node{index}", node(index))
        placements = tuple(
            Placement(peer=f"node{peer}", rail="rail0", via="rail0", entropy=2) for peer in range(4) if peer != index
        )
        store.fleet.fold_wanted(f"node{index}", NodePaths(node=f"node{index}", lease_revision=1, placements=placements))
    return store


def node(index):
    """An inventory record with one NIC of four entropies."""
    nic = Nic(
        name=f"node{index}.rail0", rail="rail0", device="eth0", address=f"10.0.0.{index}", clock=f"node{index}",
        service_address=f"10.200.0.{index}", path_addresses=("100.64.0.1",) * 4, entropies=(0, 1, 2, 3),
    )  # fmt: skip
    return Node(name=f"node{index}", nics=(nic,))


def flow(source, destination):
    """The name of a flow."""
    return f"node{source}.rail0>node{destination}.rail0"


def batch(at_ns, source, *flows):
    """What a node tells of its flows: (destination, Mb/s while busy, busy share) each."""
    rows = np.zeros(len(flows), FlowRow)
    for place, (_, mbps, busy) in enumerate(flows):
        busy_ns = round(busy * HALF_NS)
        acked = round(mbps / 8 * busy_ns / 1e3)
        rows[place] = (place, 1, 3, acked, busy_ns, busy_ns // 4, 0, 5_000_000, 90_000, acked, 4_000_000)
    names = tuple(flow(source, destination) for destination, _, _ in flows)
    return FlowBatch.of(rows, node=f"node{source}", at_ns=at_ns, interval_ns=HALF_NS, flows=names)


def tell(store, clock, seconds, flows):
    """Lets the senders tell of their flows for a while."""
    for _ in range(round(2 * seconds)):
        clock.now_ns += HALF_NS
        for source, own in flows.items():
            store.jobs.fold_flows(batch(clock.now_ns, source, *own))


def register(store, name, *hosts, priority=0, since_ns=7):
    """Registers a job."""
    nics = tuple(f"node{host}.rail0" for host in hosts)
    store.jobs.fold_job(name, Job(name=name, nics=nics, priority=priority, since_ns=since_ns))


def contention(clock, flows, state="fabric-contention", **more):
    """The detector's word on flows that share a link."""
    told = {
        "id": f"f/{state}", "kind": "contention", "who": LINK, "state": state, "at_ns": clock.now_ns,
        "since_ns": clock.now_ns - S, "evidence": {"slowest": flows[0], "usual_mbps": 90.0, "slowest_share": 0.5},
        "related": {"links": (LINK,), "flows": tuple(flows), "jobs": ("pretrain-7",)},
    }  # fmt: skip
    return Event(**told | more)


def test_a_registered_job_has_its_flows_and_others_are_found(store, clock):
    """With what they carry, pauses included; a job without traffic is there, too."""
    register(store, "pretrain-7", 0, 2, priority=5)
    register(store, "idle", 3)
    tell(store, clock, 3, {0: [(2, 40.0, 0.5)], 1: [(0, 20.0, 1.0)]})
    jobs = {job.job: job for job in queries.jobs(store)}
    assert list(jobs) == ["found:node0", "idle", "pretrain-7"]
    known = jobs["pretrain-7"]
    assert (known.registered, known.priority, known.since_ns, known.flows) == (True, 5, 7, 1)
    assert (known.nodes, known.slowest) == (("node0", "node2"), flow(0, 2))
    assert (known.carried_bps, known.slowest_share) == (pytest.approx(20e6), pytest.approx(1.0))
    found = jobs["found:node0"]
    assert (found.registered, found.nodes, found.since_ns) == (False, ("node0", "node1"), 0)
    idle = jobs["idle"]
    assert (idle.flows, idle.slowest, idle.slowest_share, idle.nodes) == (0, "", None, ("node3",))


def test_the_slowest_flow_is_the_one_that_gets_the_least_while_it_sends(store, clock):
    """Flows that work in step carry the same on the whole: who is done waits for the slowest."""
    register(store, "pretrain-7", 0, 1, 2, 3)
    tell(store, clock, 3, {0: [(2, 80.0, 0.5)], 1: [(3, 80.0, 0.5)]})
    tell(store, clock, 3, {0: [(2, 80.0, 0.5)], 1: [(3, 40.0, 1.0)]})
    why = queries.why(store, "pretrain-7")
    assert why.slowest.flow == why.job.slowest == flow(1, 3)
    assert (why.slowest.rate_bps, why.slowest.usual_bps) == (pytest.approx(40e6), pytest.approx(80e6))
    assert (why.slowest.share, why.job.slowest_share) == (pytest.approx(0.5), pytest.approx(0.5))
    assert why.flows[1].carried_bps == pytest.approx(why.slowest.carried_bps)
    assert [each.flow for each in why.flows] == [flow(1, 3), flow(0, 2)]
    assert why.cause is None
    shown = why.slowest
    assert (shown.path, shown.rtt_ns, shown.least_rtt_ns, shown.retransmitted) == (
        f"{flow(1, 3)}#2", 5_000_000, 90_000, 3,
    )  # fmt: skip
    assert (shown.receiver_limited_share, shown.busy_share, shown.at_ns) == (pytest.approx(0.25), 1.0, clock.now_ns)
    assert shown.in_band_ns == 4_000_000


def test_a_flow_that_pauses_gets_nothing_and_keeps_its_usual_rate(store, clock):
    """It is a job's for a minute more."""
    tell(store, clock, 3, {0: [(1, 80.0, 1.0)]})
    clock.now_ns += 4 * S
    why = queries.why(store, "found:node0")
    (paused,) = why.flows
    assert (paused.rate_bps, paused.usual_bps, why.slowest, why.cause) == (0.0, pytest.approx(80e6), None, None)
    tell(store, clock, 0.5, {0: [(1, 20.0, 1.0)]})
    (back,) = queries.why(store, "found:node0").flows
    assert (back.rate_bps, back.usual_bps) == (pytest.approx(20e6), pytest.approx(80e6))
    clock.now_ns += 61 * S
    assert list(queries.jobs(store)) == []


def test_the_cause_is_the_trouble_that_names_the_slowest_flow(store, clock):
    """With its sentence and figures, until it is over; what the flow could have had counts as its usual rate."""
    register(store, "pretrain-7", 0, 2)
    tell(store, clock, 3, {0: [(2, 45.0, 1.0)], 1: [(3, 45.0, 1.0)]})
    event = contention(clock, [flow(0, 2), flow(1, 3)])
    store.event(event)
    why = queries.why(store, "pretrain-7")
    assert (why.cause.event, why.cause.kind, why.cause.state) == (event.id, "contention", "fabric-contention")
    assert (why.cause.who, why.cause.part, why.cause.since_ns) == (LINK, "flow", event.since_ns)
    assert why.cause.evidence == event.evidence
    assert why.cause.sentence.startswith(f"flows share the link {LINK} while others have room")
    assert (why.slowest.usual_bps, why.slowest.share) == (90e6, pytest.approx(0.5))

    store.event(contention(clock, [flow(0, 2)], "clear", cause=event.id, at_ns=clock.now_ns + S))
    assert queries.why(store, "pretrain-7").cause is None


@pytest.mark.parametrize(
    ("event", "part"),
    [
        ({"kind": "path", "who": f"{flow(0, 2)}#2", "state": "silent"}, "path"),
        ({"kind": "path", "who": f"{flow(0, 2)}#3", "state": "silent"}, None),
        ({"kind": "path", "who": f"{flow(2, 0)}#2", "state": "silent"}, None),
        ({"kind": "flap", "who": "node2.rail0", "state": "down"}, "nic"),
        ({"kind": "flap", "who": "node1.rail0", "state": "down"}, None),
        ({"kind": "contention", "who": LINK, "state": "reduced-rate",
          "related": {"links": (LINK,), "flows": (flow(1, 3),)}}, "link"),
        ({"kind": "contention", "who": "node2.rail0", "state": "own-nic",
          "related": {"links": ("node2.rail0/out",), "flows": (flow(2, 3),), "jobs": ("pretrain-7",)}}, None),
        ({"kind": "contention", "who": f"inferred:{flow(1, 3)}#0", "state": "fabric-contention",
          "related": {"flows": (flow(1, 3),), "free": (f"{flow(0, 2)}#2",)}}, None),
        ({"kind": "threshold", "who": "slow", "state": "over", "related": {"paths": (f"{flow(0, 2)}#2",)}}, "path"),
        ({"kind": "mismatch", "who": flow(0, 2), "state": "elsewhere", "related": {"flows": (flow(0, 2),)}}, None),
        ({"kind": "clock", "who": "node0", "state": "disrupted"}, None),
        ({"kind": "refusal", "who": "node0.rail0", "state": "refused"}, None),
        ({"kind": "quake", "who": "node0.rail0", "state": "shaking"}, None),
    ],
)  # fmt: skip
def test_a_trouble_concerns_a_flow_by_its_path_its_nics_or_its_links(store, clock, event, part):
    """Not one at the same NIC in the other direction, nor one that names other flows and links."""
    hops = np.array([(0, 1, 0x0A090000), (0, 2, 0x0A010000), (0, 4, 0x0A090001)], HopRow)
    store.fleet.fold_hops(HopBatch.of(hops, node="node0", at_ns=1, paths=(f"{flow(0, 2)}#2",)))
    register(store, "pretrain-7", 0, 2)
    tell(store, clock, 1, {0: [(2, 45.0, 1.0)]})
    store.event(Event(id="e", at_ns=5, since_ns=4, **event))
    cause = queries.why(store, "pretrain-7").cause
    assert (cause and cause.part) == part


def test_what_names_the_flow_comes_before_what_names_its_parts(store, clock):
    """A threshold comes last: it says that something is late, and not why."""
    register(store, "pretrain-7", 0, 2)
    tell(store, clock, 1, {0: [(2, 45.0, 1.0)]})
    over = {"kind": "threshold", "who": "slow", "state": "over", "related": {"flows": (flow(0, 2),)}}
    store.event(Event(id="over", at_ns=1, since_ns=1, **over))
    assert queries.why(store, "pretrain-7").cause.event == "over"
    store.event(Event(id="down", kind="flap", who="node2.rail0", state="down", at_ns=9, since_ns=9))
    assert queries.why(store, "pretrain-7").cause.event == "down"
    store.event(contention(clock, [flow(0, 2)]))
    assert queries.why(store, "pretrain-7").cause.event == "f/fabric-contention"


def test_jobs_with_addresses_of_others_are_refused_and_counted(store, clock):
    """And one that is not written again for a minute is over."""
    register(store, "pretrain-7", 0, 2)
    register(store, "thief", 2, 3, since_ns=8)
    register(store, "stranger", 9)
    assert [job.job for job in queries.jobs(store)] == ["pretrain-7"]
    assert store.jobs.refused == 2
    clock.now_ns += 61 * S
    assert list(queries.jobs(store)) == []
    register(store, "thief", 2, 3, since_ns=8)
    store.jobs.fold_job("thief", None)
    assert list(queries.jobs(store)) == []


def test_flows_of_strangers_are_limited(store, clock, monkeypatch):
    """What the inventory does not name takes no more memory than that; what it names has always room."""
    monkeypatch.setattr("foliot_gateway.state.cardinality_limit.MOST_STRANGERS", 2)
    rows = np.zeros(4, FlowRow)
    rows["flow"], rows["acked_bytes"] = np.arange(4), 1
    names = (*(f"node0.rail0>x{number}.rail0" for number in range(3)), flow(0, 1))
    store.jobs.fold_flows(FlowBatch.of(rows, node="node0", at_ns=1, interval_ns=HALF_NS, flows=names))
    (job,) = queries.jobs(store)
    assert job.nodes == ("node0", "node1", "x0", "x1")


def test_a_job_that_is_not_there_is_said_to_be(store):
    """In a sentence, with a word for programs."""
    with pytest.raises(NotFoundError, match="There is no job nobody now") as refused:
        queries.why(store, "nobody")
    assert refused.value.reason == "no-such-job"


@pytest.fixture
def contended(store, clock):
    """A gateway that knows of a registered and a found job, which share a link."""
    register(store, "pretrain-7", 0, 2, priority=5)
    tell(store, clock, 3, {0: [(2, 45.0, 1.0)], 1: [(3, 45.0, 1.0)]})
    store.event(contention(clock, [flow(0, 2), flow(1, 3)]))
    at_ns = clock.now_ns + 3 * S
    more = {"kind": "hang", "at_ns": at_ns, "since_ns": at_ns}
    store.event(Event(id="h", who="pretrain-7/rank1", state="absent", related={"nodes": ("node2",)}, **more))
    store.event(Event(id="d", who="pretrain-7/rank0", state="dead", **more))
    store.event(Event(id="e", who="pretrain-7/rank0", state="moving", cause="d", **more | {"at_ns": at_ns + 1}))
    store.event(Event(id="o", who="pretrain-70/rank1", state="dead", **more))
    lost = worker(4, 1, "broken", alive="stopped", step=1_200, reason="a peer is gone")
    store.jobs.fold_workers(workers(0, worker(1, 0, step=1_200), worker(2, 2, step=1_201), worker(3, -1, "spare")))
    store.jobs.fold_workers(workers(2, lost))


@pytest.mark.usefixtures("contended")
def test_a_job_has_the_troubles_of_its_ranks_that_stand(store):
    """Not those that are over, nor those of another job."""
    (rank,) = queries.why(store, "pretrain-7").ranks
    assert (rank.event, rank.state, rank.who, rank.nodes) == ("h", "absent", "pretrain-7/rank1", ("node2",))
    assert queries.why(store, "found:node1").ranks == ()


def worker(process, rank, stage="training", **more):
    """What a node says of a process of a job."""
    told = {"process": process, "rank": rank, "generation": 0, "step": 40, "alive": "running"}
    return WorkerState(stage=stage, since_ns=5, heard_ns=9, **told | more)


def workers(host, *states, job="pretrain-7"):
    """What a node says of a job's processes."""
    return WorkerBatch(job=job, node=f"node{host}", at_ns=9, bound_ns=1, size=4, workers=states)


def test_a_job_has_its_workers_and_its_spares(store, clock):
    """Of two that had a rank, the one of the higher generation, whoever spoke last."""
    store.jobs.fold_workers(workers(0, worker(1, 0, generation=1), worker(2, -1, "spare")))
    store.jobs.fold_workers(workers(2, worker(3, 1, generation=1, step=39)))
    store.jobs.fold_workers(workers(1, worker(4, 1, "broken", alive="gone", reason="its peer is gone")))
    why = queries.why(store, "pretrain-7")
    assert [(each.rank, each.node, each.stage, each.generation, each.step) for each in why.workers] == [
        (0, "node0", "training", 1, 40), (1, "node2", "training", 1, 39),
    ]  # fmt: skip
    assert (why.spares, why.job.registered, why.job.nodes) == (1, False, ("node0", "node1", "node2"))
    clock.now_ns += 61 * S
    assert list(queries.jobs(store)) == []


def test_workers_that_are_too_many_are_limited(store, clock, monkeypatch):
    """Nodes that may say anything take no more memory than that; in an answer, those in trouble come before others."""
    monkeypatch.setattr("foliot_gateway.state.job_workers._MOST_WORKERS", 3)
    monkeypatch.setattr("foliot_gateway.state.job_workers._MOST_SHOWN", 2)
    store.jobs.fold_workers(workers(0, worker(1, 0), worker(2, 1), worker(3, 2, "broken")))
    store.jobs.fold_workers(workers(1, worker(4, 3)))
    assert [each.rank for each in queries.why(store, "pretrain-7").workers] == [0, 2]
    clock.now_ns += 61 * S
    store.jobs.fold_workers(workers(1, worker(4, 3)))
    assert [each.rank for each in queries.why(store, "pretrain-7").workers] == [3]


def test_workers_of_another_job_are_not_believed(store):
    """A registered job has a NIC where its workers run; and nobody names a job that is found."""
    register(store, "pretrain-7", 0, 2)
    store.jobs.fold_workers(workers(3, worker(1, 0)))
    assert queries.why(store, "pretrain-7").workers == ()
    with pytest.raises(ValueError, match="found:"):
        store.jobs.fold_workers(workers(3, worker(1, 0), job="found:node1"))
    with pytest.raises(ValueError, match="twice"):
        store.jobs.fold_workers(workers(0, worker(1, 0), worker(1, 1)))


@pytest.mark.usefixtures("contended", "served")
async def test_both_transports_tell_the_same(client, rpc_port):
    """Every field, of the list and of one job."""
    answers = {name: (await client.get(f"/api/v1/jobs{name}")).json() for name in ("", "/pretrain-7", "/found:node1")}
    with await asyncio.to_thread(Reflected, rpc_port, patience(30)) as reader:
        assert await asyncio.to_thread(reader.ask, "foliot.v1.JobsService/ListJobs") == answers[""]
        for name in ("pretrain-7", "found:node1"):
            answer = await asyncio.to_thread(reader.ask, "foliot.v1.JobsService/GetJob", job=name)
            assert answer == answers[f"/{name}"]


@pytest.mark.usefixtures("contended")
async def test_the_command_tells_it_in_words_and_in_json(client, capsys):
    """Of one job, and of all; and that there is none."""

    async def why(*words):
        capsys.readouterr()  # what was logged until now
        status = await asyncio.to_thread(cli.main, ["why", *words, "--gateway", str(client.base_url)])
        return status, capsys.readouterr()

    status, said = await why("pretrain-7", "--json")
    assert (status, msgspec.json.decode(said.out)) == (0, (await client.get("/api/v1/jobs/pretrain-7")).json())
    status, said = await why("pretrain-7")
    assert (status, said.out) == (0, SAID)
    status, said = await why()
    assert [line.partition("  ")[0] for line in said.out.splitlines()] == ["found:node1", "pretrain-7"]
    status, said = await why("nobody")
    assert (status, said.err) == (1, "foliot why: there is no job nobody now\n")
    assert "foliot_jobs_refused_total 0.0" in (await client.get("/metrics")).text


SAID = f"""\
pretrain-7  registered, priority 5, nodes: 2, flows: 1, 45 Mb/s
  nodes    node0, node2
  rank     pretrain-7/rank1 has not begun what others wait in
           on node2, since 2027-01-15 08:00:06.000Z: h
  workers  training, generation 0, step 1,200 to 1,201
           rank 0 on node0, rank 2 on node0
  workers  broken, process stopped, generation 0, step 1,200: a peer is gone
           rank 1 on node2
  spares   1
  slowest  {flow(0, 2)} by {flow(0, 2)}#2
  gets     45 Mb/s (50% of its usual): before, 90 Mb/s
  delays   round trip 5 ms, at least 90 µs, one way by TCP's stamps 4 ms
  cause    flows share the link {LINK} while others have room (2 flows, the slowest at 50% of what it could get)
  since    2027-01-15 08:00:02.000Z
  event    f/fabric-contention
"""


@pytest.mark.nats
async def test_jobs_flows_and_events_come_over_the_bus(gateway, bus, eventually):
    """A job that somebody registered, what its sender tells, and the trouble; and that the job has ended."""
    http = gateway()
    await eventually(http.healthy)
    for index in (0, 2):
        await bus.put(INVENTORY, f"node{index}", node(index))
    job = Job(name="pretrain-7", nics=("node0.rail0", "node2.rail0"), since_ns=7)
    event = contention(Clock(), [flow(0, 2)])
    bus.publish_kept(EVENT, event, event.kind, event.who)

    async def shown():
        await bus.put(JOBS, job.name, job)  # the gateway may not have heard of the NICs at first
        await bus.publish(FLOW, batch(1_800_000_000 * S, 0, (2, 45.0, 1.0)), "node0")
        answer = await http.get("/api/v1/jobs/pretrain-7")
        return answer.status_code == 200 and answer.json()["cause"] and answer.json()

    why = await eventually(shown)
    assert (why["job"]["registered"], why["slowest"]["flow"], why["cause"]["event"]) == (True, flow(0, 2), event.id)
    await (await bus.store(JOBS)).delete("pretrain-7")

    async def found():
        return [job["job"] for job in (await http.get("/api/v1/jobs")).json()] == ["found:node0"]

    await eventually(found)


async def test_workers_and_drained_nodes_come_over_the_bus(gateway, bus, eventually):
    """What an agent tells of a job that nobody registered, and what a person wants of a node."""
    http = gateway()
    await eventually(http.healthy)
    await bus.put(INVENTORY, "node0", node(0))
    await bus.put(DRAINS, "node0", Drain(node="node0", at_ns=1))

    async def shown():
        batch = workers(0, worker(1, 0), worker(2, -1, "spare"))
        await bus.publish(WORKER, batch, batch.job, batch.node)
        answer = await http.get("/api/v1/jobs/pretrain-7")
        fleet = (await http.get("/api/v1/fleet")).json()
        is_drained = [each["node"] for each in fleet if each["drained"]] == ["node0"]
        return answer.status_code == 200 and is_drained and answer.json()

    why = await eventually(shown)
    assert ([each["stage"] for each in why["workers"]], why["spares"]) == (["training"], 1)
    await bus.put(DRAINS, "node0", Drain(node="node0", at_ns=2, over=True))

    async def is_back():
        return not any(each["drained"] for each in (await http.get("/api/v1/fleet")).json())

    await eventually(is_back)


def test_flows_that_nobody_told_of_for_long_leave_their_rows_to_others(store, clock):
    """Of nodes that come and go, with ever new names. Flows that go on keep what is known of them."""
    tell(store, clock, 3, {0: [(2, 90.0, 1.0)]})
    rows = set()
    for turn in range(6):
        for number in range(50):
            guest = f"guest{turn}-{number}"
            nic = msgspec.structs.replace(node(9).nics[0], name=f"{guest}.rail0")
            store.fleet.fold_node(guest, Node(name=guest, nics=(nic,)))
            told = msgspec.structs.replace(
                batch(clock.now_ns, 0, (2, 1.0, 1.0)), node=guest, flows=(f"{nic.name}>node2.rail0",)
            )
            store.jobs.fold_flows(told)
            store.fleet.fold_node(guest, None)
        for _ in range(15):
            clock.now_ns += 60 * S
            tell(store, clock, 3, {0: [(2, 45.0, 1.0)]})
        rows.add(len(store.jobs._rates._told_ns))
        assert len(store.jobs._rates._numbers) < 150
    assert len(rows) == 1
    (job,) = queries.jobs(store)
    assert job.slowest_share == pytest.approx(1.0)
