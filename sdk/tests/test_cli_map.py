"""``foliot map``: the table that a person reads, and the answers that it takes."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from foliot import cli
from foliot.cli import map as map_command
from foliot.cli.map_table import PathMap, render

TOLD_NS = 1_800_000_000_123_000_000


def path(source, destination, entropy, *between, known=True, told_ns=TOLD_NS):
    """A path of rail0."""
    links = (f"{source}.rail0/out", *between, f"{destination}.rail0/in") if told_ns else ()
    return {
        "path": f"{source}.rail0>{destination}.rail0#{entropy}", "source": f"{source}.rail0",
        "destination": f"{destination}.rail0", "rail": "rail0", "entropy": entropy, "links": links, "known": known,
        "told_ns": told_ns,
    }  # fmt: skip


def link(name, source, destination, paths):
    """A link."""
    return {"link": name, "source": source, "destination": destination, "paths": paths}


def router(name, role, *nodes):
    """A router of rail0."""
    return {
        "router": name,
        "role": role,
        "rails": ["rail0"],
        "nics": [f"{node}.rail0" for node in nodes],
        "addresses": [name],
    }


WHOLE = {
    "paths": [
        path("node0", "node1", 0),
        path("node0", "node2", 0, "10.1.0.1", "10.1.1.0"),
        path("node0", "node2", 1, "", "10.1.1.2", known=False),
        path("node0", "node3", 0, known=False, told_ns=0),
    ],
    "links": [
        link("node0.rail0/out", "node0.rail0", "10.0.0.0", 3),
        link("node1.rail0/in", "10.0.0.0", "node1.rail0", 1),
        link("10.1.0.1", "10.0.0.0", "10.1.0.1", 1),
        link("10.1.1.0", "10.1.0.1", "10.0.1.0", 12),
        link("node2.rail0/in", "10.0.1.0", "node2.rail0", 2),
        link("10.1.1.2", "", "10.0.1.0", 1),
    ],
    "routers": [
        router("10.0.0.0", "leaf", "node0", "node1"),
        router("10.1.0.1", "spine"),
        router("10.0.1.0", "leaf", "node2"),
    ],
}

FABRIC = """\
rail0: 4 NICs, 2 leaves, 1 spine; 4 paths, 2 known
  leaf 10.0.0.0: node0.rail0 node1.rail0
  leaf 10.0.1.0: node2.rail0
  spine 10.1.0.1
  below no known leaf: node3.rail0

from            to              paths  link
?               leaf 10.0.1.0       1  10.1.1.2
leaf 10.0.0.0   spine 10.1.0.1      1  10.1.0.1
spine 10.1.0.1  leaf 10.0.1.0      12  10.1.1.0
"""

PATHS = """
path                       told           links between routers
node0.rail0>node1.rail0#0  08:00:00.123Z  none
node0.rail0>node2.rail0#0  08:00:00.123Z  10.1.0.1, 10.1.1.0
node0.rail0>node2.rail0#1  08:00:00.123Z  ?, 10.1.1.2 (not known)
node0.rail0>node3.rail0#0                 not told yet
"""


def text(found, **more):
    """The lines of a map as one text."""
    return "".join(f"{line}\n" for line in render(msgspec.convert(found, PathMap), **more))


def test_a_map_reads_as_leaves_spines_and_links():
    """A block for the rail, a line for each link between routers, and what is not known."""
    assert text(WHOLE, each_path=False) == FABRIC


def test_each_path_is_a_line_if_that_is_wanted():
    """With its links in their order."""
    assert text(WHOLE, each_path=True) == FABRIC + PATHS


def test_a_path_of_which_no_router_answered_says_so():
    """It was told of, unlike one that is not asked yet."""
    silent = path("node0", "node1", 0, known=False) | {"links": []}
    shown = text({"paths": [silent], "links": [], "routers": []}, each_path=True)

    assert shown.splitlines()[-1].endswith("no router answers")


@pytest.fixture
def gateway(monkeypatch):
    """The address of something that answers as a gateway does: two paths an answer. `asked` has the questions."""
    monkeypatch.setattr(map_command, "_PATHS", 2)
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            parts = urlsplit(self.path)
            question = {name: value for name, (value,) in parse_qs(parts.query).items()}
            asked.append(question)
            names = [each["path"] for each in WHOLE["paths"]]
            after = names.index(question["after"]) + 1 if "after" in question else 0
            found = [] if question.get("from") == "nobody" else WHOLE["paths"][after : after + int(question["limit"])]
            crossed = {name for each in found for name in each["links"]}
            answer = {
                "paths": found,
                "links": [each for each in WHOLE["links"] if each["link"] in crossed],
                "routers": WHOLE["routers"] if crossed else [],
            }
            status = 400 if question.get("rail") == "wrong" else 200
            problem = {"detail": "The parameters of /api/v1/map are wrong."}
            body = json.dumps(answer if status == 200 and parts.path == "/api/v1/map" else problem).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    serving.start()
    monkeypatch.setenv("FOLIOT_GATEWAY", f"http://127.0.0.1:{server.server_port}")
    yield asked
    server.shutdown()
    server.server_close()
    serving.join()


def test_json_is_all_that_the_gateway_answers_in_one_object(gateway, capsys):
    """Parts of a long answer are put together, each link and router once."""
    assert cli.main(["map", "--json", "--rail", "rail0"]) == 0

    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(WHOLE))
    afters = [None, "node0.rail0>node2.rail0#0", "node0.rail0>node3.rail0#0"]
    assert gateway == [
        {"rail": "rail0", "limit": "2"} | ({} if after is None else {"after": after}) for after in afters
    ]


@pytest.mark.parametrize(
    ("arguments", "expected"), [(["--rail", "rail0"], FABRIC), (["--from", "node0"], FABRIC + PATHS)]
)
def test_the_table_has_each_path_where_few_are_asked_for(gateway, capsys, arguments, expected):
    """By an end, a name or a link; a rail has many."""
    assert cli.main(["map", *arguments]) == 0

    assert capsys.readouterr().out == expected


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--from", "nobody"], "the gateway knows of no such path"),
        (["--rail", "wrong"], "the parameters of /api/v1/map are wrong"),
        (["--gateway", "nonsense"], "the gateway's address begins with http"),
    ],
)
def test_what_cannot_be_shown_is_said(gateway, capsys, arguments, said):
    """In a sentence, with status 1."""
    assert cli.main(["map", *arguments]) == 1

    assert said in capsys.readouterr().err
