"""``foliot trace``: the tree that a person reads, and what is said when there is none."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest
from msgspec.structs import asdict

from foliot import cli
from foliot.cli.trace import NotYetError, TraceError, settled
from foliot.cli.trace_tree import SERVICE_COLOURS, Span, Trace, render

TRACE = "0af7651916cd43dd8448eb211c80319c"
BASE_NS = 1_800_000_000_000_000_000
EVENT = "boot/node3.rail0/carrier-1#down>x"
PATH_EVENT = "path/silent"
PATH = "node1.rail0>node2.rail0#2"
KNOWN = (EVENT, PATH_EVENT, f"{EVENT}/old", "own")
"""The events of which the gateway has a trace."""


def span(number, parent, name, process, start_us, took_us, **more):  # noqa: PLR0917 - a table reads best in columns
    """A span; `process` is ``node/service`` or a service."""
    service = process.rpartition("/")[2]
    return Span(
        span_id=f"{number:x}", parent_id=f"{parent:x}" if parent else "", name=name, service=service,
        instance=process if "/" in process else "", start_ns=BASE_NS + start_us * 1_000,
        end_ns=BASE_NS + (start_us + took_us) * 1_000, **more,
    )  # fmt: skip


def tree(*spans, quiet_ns=10_000_000_000):
    """The gateway's answer for these spans."""
    return Trace(summary={"trace_id": TRACE}, quiet_ns=quiet_ns, spans=spans)


def judged(who, kind, state):
    """The attributes of a detector's span."""
    return {"foliot.event_kind": kind, "foliot.who": who, "foliot.state": state, "foliot.event": "e"}


FAULT = tree(
    span(1, 0, "link lost", "node3/probe", 0, 41, attributes={"foliot.nic": "node3.rail0", "foliot.boot": "b"}),
    span(2, 1, "judge port change", "detector", 612, 203, attributes=judged("node3.rail0", "flap", "down")),
    span(3, 2, "choose other paths", "remediator", 1_100, 420),
    span(
        5,
        3,
        "carry out command",
        "node3/agent",
        2_011,
        4_900,
        attributes={"foliot.node": "node3", "foliot.status": "done"},
    ),
    span(
        4,
        3,
        "carry out command",
        "node0/agent",
        2_000,
        6_104,
        attributes={"foliot.node": "node0", "foliot.status": "done"},
    ),
    span(6, 4, "move routes", "node0/agent", 2_100, 350),
    span(7, 4, "confirm on the wire", "node0/agent", 2_500, 5_600, status="error", message="no echo from node7"),
    span(8, 4, "show event", "gateway", 8_700, 30, attributes={"foliot.node": "node0", "foliot.status": "done"}),
    span(9, 1, "own carrier lost", "node3/agent", -20, 15, attributes={"foliot.nic": "node3.rail0"}),
)

GOLDEN = """\
node3.rail0 lost its carrier · 8.730 ms · 9 spans · agent, probe, detector, remediator, gateway
trace 0af7651916cd43dd8448eb211c80319c
      at ms     took ms  service      span
      0.000       0.041  node3/probe  link lost                        nic=node3.rail0
     -0.020       0.015  node3/agent  ├─ own carrier lost              nic=node3.rail0
      0.612       0.203  detector     └─ judge port change             who=node3.rail0 state=down
      1.100       0.420  remediator      └─ choose other paths
      2.000       6.104  node0/agent        ├─ carry out command       node=node0 status=done
      2.100       0.350  node0/agent        │  ├─ move routes
      2.500       5.600  node0/agent        │  ├─ confirm on the wire  error: no echo from node7
      8.700       0.030  gateway            │  └─ show event           node=node0 status=done
      2.011       4.900  node3/agent        └─ carry out command       node=node3 status=done
"""


def text(trace, **more):
    """The lines of a trace as one text."""
    return "".join(f"{line}\n" for line in render(trace, **more))


def test_a_fault_reads_as_a_tree_with_times():
    """One fault from the link message to the page: golden text, times from the root, children by their start."""
    assert text(FAULT) == GOLDEN


def test_the_order_of_arrival_changes_nothing():
    """The gateway's order is not relied on."""
    assert text(tree(*reversed(FAULT.spans))) == GOLDEN


def silence(number, parent, path, start_us, state="silent"):
    """The detector's word on a path."""
    attributes = judged(path, "path", state)
    return span(number, parent, "judge silence", "detector", start_us, 100, attributes=attributes)


PATHS = [f"node1.rail0>node{number}.rail0#0" for number in range(2, 8)]
SILENCE = tree(
    silence(1, 0, PATHS[0], 0),
    *(silence(2 + index, 1, path, 200 + 200 * index) for index, path in enumerate(PATHS[1:])),
    span(20, 4, "decide reroute", "remediator", 900, 50, attributes={"foliot.who": "node1.rail0"}),
    *(silence(21 + index, 1, path, 2_000_000 + 200 * index, "speaking") for index, path in enumerate(PATHS[:2])),
    silence(31, 1, PATHS[5], 4_000_000, "speaking"),
)
SILENCE_GOLDEN = """\
nothing arrives any more on node1.rail0>node2.rail0#0 and 5 more · 4000.100 ms · 10 spans · detector, remediator
trace 0af7651916cd43dd8448eb211c80319c
      at ms     took ms  service     span
      0.000       0.100  detector    judge silence              who=node1.rail0>node2.rail0#0 state=silent
      0.200       0.900  detector    ├─ judge silence, 4 times  who="node1.rail0>node3.rail0#0, node1.rail0>node4.rail0#0 and 2 more" state=silent
      0.600       0.100  detector    ├─ judge silence           who=node1.rail0>node5.rail0#0 state=silent
      0.900       0.050  remediator  │  └─ decide reroute       who=node1.rail0
   2000.000       0.300  detector    ├─ judge silence, 2 times  who="node1.rail0>node2.rail0#0, node1.rail0>node3.rail0#0" state=speaking
   4000.000       0.100  detector    └─ judge silence           who=node1.rail0>node7.rail0#0 state=speaking
"""


def test_many_paths_that_fell_silent_are_one_line_and_the_title_says_which():
    """What leads on has a line of its own; so has what came much later, and what says something else."""
    assert text(SILENCE) == SILENCE_GOLDEN


def test_on_demand_each_has_its_line():
    """With all attributes there is nothing to be told together."""
    shown = text(SILENCE, everything=True)

    assert [sum(path in line for line in shown.splitlines()[3:]) for path in PATHS] == [2, 2, 1, 1, 1, 2]


def test_before_the_detector_has_spoken_the_title_is_what_began_and_where():
    """Its span may be the last to arrive."""
    assert text(tree(*FAULT.spans[:1])).startswith("link lost: node3.rail0 · 0.041 ms · 1 span · probe\n")


def test_all_attributes_are_shown_on_demand():
    """Those of the short form first, then the others by name; text with blanks is quoted, empty values are left out."""
    attributes = {"foliot.nic": "node3.rail0", "z": [1, 2], "foliot.boot": "b c", "foliot.reason": "", "armed": True}
    lines = text(tree(span(1, 0, "lose carrier", "probe", 0, 1, attributes=attributes)), everything=True).splitlines()

    assert lines[-1].endswith('lose carrier  nic=node3.rail0 armed=true boot="b c" z="[1, 2]"')


def test_spans_whose_parent_has_not_arrived_are_shown_below_its_place():
    """A missing process leaves a gap that is named, not a tree that looks complete."""
    shown = text(tree(span(2, 1, "judge", "detector", 0, 5), span(3, 1, "choose", "detector", 7, 5))).splitlines()

    column = shown[2].index("span")
    assert [line[column:] for line in shown[3:]] == ["a span that has not arrived", "├─ judge", "└─ choose"]


def test_parents_that_form_a_loop_are_shown_once():
    """No sender should, but the command ends all the same, with every span on one line."""
    shown = text(tree(span(1, 2, "a", "s", 0, 1), span(2, 1, "b", "s", 1, 1), span(3, 3, "c", "s", 2, 1)))

    assert [line.split()[-1] for line in shown.splitlines()[3:]] == ["a", "b", "c"]


def test_a_chain_deeper_than_python_recurses_is_shown():
    """A thousand spans below each other are no reason to fail."""
    chain = tree(*(span(number, number - 1, f"step{number}", "s", number, 1) for number in range(1, 1_501)))

    assert sum("step" in line for line in render(chain)) == 1_501  # the headline names the root as well


def test_colours_are_only_paint():
    """Without its escape sequences the coloured text is the plain one, and it does have some."""
    coloured = text(FAULT, colour=True)
    plain = coloured
    for code in (1, 2, 31, *SERVICE_COLOURS):
        plain = plain.replace(f"\x1b[{code}m", "")

    assert "\x1b[31m  error: no echo from node7\x1b[0m" in coloured
    assert plain.replace("\x1b[0m", "") == GOLDEN


class Time:
    """Time that passes only by sleeping."""

    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        """Seconds."""
        return self.now_s

    def sleep(self, seconds):
        """Lets it pass."""
        self.now_s += seconds


def test_an_old_trace_is_shown_at_once():
    """Where nothing has arrived for a while, there is nothing to wait for."""
    time = Time()

    assert settled(lambda: FAULT, 3.0, time, time.sleep) is FAULT
    assert time.now_s == 100.0


def test_a_growing_trace_is_waited_for_until_it_is_quiet():
    """The answer is the one after the last batch, not the first."""
    time = Time()
    last_batch_s = 101.0

    def look():
        spans = FAULT.spans if time.now_s >= last_batch_s else FAULT.spans[:2]
        return tree(*spans, quiet_ns=int(max(0.0, time.now_s - last_batch_s) * 1e9))

    trace = settled(look, 10.0, time, time.sleep)

    assert len(trace.spans) == 9
    assert time.now_s < 110.0


def test_a_trace_that_never_rests_is_shown_when_the_wait_is_over():
    """Better what there is than nothing."""
    time = Time()

    assert settled(lambda: tree(*FAULT.spans, quiet_ns=0), 3.0, time, time.sleep).spans == FAULT.spans
    assert time.now_s == 103.0


def test_what_may_still_arrive_is_waited_for_and_then_named():
    """An event that is on its way is found; one that has not come when the wait is over is named."""

    def look_of(time):
        def look():
            if time.now_s < 101.0:
                raise NotYetError("there is no event e")
            return FAULT

        return look

    patient, hasty = Time(), Time()

    assert settled(look_of(patient), 3.0, patient, patient.sleep) is FAULT
    with pytest.raises(NotYetError, match="no event e"):
        settled(look_of(hasty), 0.5, hasty, hasty.sleep)


def test_what_cannot_arrive_is_not_waited_for():
    """A gateway that is not there is said at once."""
    time = Time()

    def look():
        raise TraceError("the gateway is not reachable")

    with pytest.raises(TraceError, match="not reachable"):
        settled(look, 3.0, time, time.sleep)
    assert time.now_s == 100.0


def answer_of(target):
    """Status and body of a gateway that knows one trace."""
    address = urlsplit(target)
    if address.path == "/api/v1/events":
        events = [{"id": EVENT, "who": "node3.rail0", "fault": "f"},
                  {"id": "older", "who": "node3.rail0", "fault": "g"},
                  {"id": PATH_EVENT, "who": PATH, "fault": "f"},
                  {"id": "loss/silent", "who": "node1.rail0>node4.rail0#0", "fault": "loss"},
                  {"id": f"{EVENT}/old", "who": "node4.rail0", "fault": "old"},
                  {"id": "own", "who": "node5.rail0", "fault": "same"}]  # fmt: skip
        events.insert(0, {"id": "a silent path", "who": "node6.rail0>node3.rail0#1", "fault": "other"})
        events.insert(-1, {"id": "same/silent", "who": "node5.rail0>node6.rail0#1", "fault": "same"})
        newest = {"id": "newest", "who": "rack1.node3/probe", "fault": ""}
        return 200, events[1:2] if parse_qs(address.query) == {"limit": ["1"]} else [newest, *events]
    if address.path == f"/api/v1/traces/{TRACE}" or parse_qs(address.query).get("event", [""])[0] in KNOWN:
        spans = [{"trace_id": TRACE, "kind": "internal", "events": []} | asdict(each) for each in FAULT.spans]
        return 200, {"summary": FAULT.summary, "quiet_ns": FAULT.quiet_ns, "spans": spans}
    return 404, {"detail": "There is no event x among those the gateway keeps.", "reason": "no-such-event"}


@pytest.fixture
def gateway():
    """An HTTP server that answers as the gateway does."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self):
            status, body = answer_of(self.path)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    "asked", [EVENT, TRACE, TRACE.upper(), "--last", "node3.rail0", "node3", "node1.rail0>node2.rail0#2", "node2.rail0"]
)
def test_an_event_a_trace_id_a_name_and_the_last_lead_to_the_tree(gateway, capsys, asked):
    """A name stands for the newest event of a fault that is about it.

    Event ids are percent-encoded on the way; nothing is coloured where nobody looks.
    """
    assert cli.main(["trace", asked, "--gateway", f"{gateway}/"]) == 0

    assert capsys.readouterr().out == GOLDEN


@pytest.mark.parametrize(
    ("asked", "note"),
    [
        (EVENT, ""),
        (PATH, ""),
        ("node5.rail0", ""),
        ("node2.rail0", f"no event is about node2.rail0 itself; this fault is of {PATH}, which begins or ends there"),
        ("node2", f"no event is about node2 itself; this fault is of {PATH}, which begins or ends there"),
        ("node3.rail0",
         ("newer than this fault is one of node6.rail0>node3.rail0#1, which begins or ends there: "
          "foliot trace 'a silent path'")),
        ("node4.rail0",
         ("newer than this fault is one of node1.rail0>node4.rail0#0, which begins or ends there: "
          "foliot trace loss/silent")),
    ],
)  # fmt: skip
def test_a_nics_own_fault_wins_over_that_of_a_path_which_touches_it(gateway, capsys, asked, note):
    """Of a loss at one NIC, paths end at all others: what is shown of those is said, and so is what is newer.

    `answer_of` has no trace of the others' faults.
    """
    assert cli.main(["trace", asked, "--gateway", gateway, "--wait", "0"]) == 0

    told = capsys.readouterr()
    assert (told.out, told.err) == (GOLDEN, f"foliot trace: {note}\n" if note else "")


def test_the_gateway_may_be_named_by_the_environment(gateway, capsys, monkeypatch):
    """FOLIOT_GATEWAY, as for every command in a lab; a proxy is not asked."""
    monkeypatch.setenv("FOLIOT_GATEWAY", gateway)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")

    assert cli.main(["trace", "--last"]) == 0
    assert capsys.readouterr().out == GOLDEN


@pytest.mark.parametrize("asked", ["x", "rail0", "rack1.node3", "rack1", ""])
def test_an_unknown_event_is_said_in_the_gateways_words(gateway, capsys, asked):
    """One line on the error stream with what else there is, and an exit status for scripts.

    An event of no fault has no trace.
    """
    assert cli.main(["trace", asked, "--gateway", gateway, "--wait", "0"]) == 1

    assert capsys.readouterr().err == (
        "foliot trace: there is no event x among those the gateway keeps, "
        "and none about a NIC, path, node or clock of this name; see --last\n"
    )


@pytest.mark.parametrize(
    ("address", "words"),
    [
        (
            "http://127.0.0.1:1",
            "the gateway is not reachable at http://127.0.0.1:1 (connection refused); is it running?",
        ),
        ("127.0.0.1:8470", "the gateway's address begins with http:// or https://, got '127.0.0.1:8470'"),
    ],
)
def test_an_absent_gateway_is_named(capsys, address, words):
    """Where it was looked for, and how to say otherwise."""
    assert cli.main(["trace", "--last", "--gateway", address]) == 1

    assert capsys.readouterr().err.startswith(f"foliot trace: {words}")


def test_either_an_id_or_the_last_is_asked_for(capsys):
    """Both or neither is a mistake of usage."""
    for arguments in (["trace"], ["trace", "x", "--last"]):
        with pytest.raises(SystemExit):
            cli.main(arguments)
    assert "usage: foliot trace" in capsys.readouterr().err
