"""The bench of the untouched fleet, with a stand-in for the gateway."""

import contextlib
import http.server
import json
import sys
import threading

import pytest

from bench import place, untouched

EVENT = {"id": "e1", "kind": "path", "who": "node0.rail0>node1.rail0#0", "state": "silent"}
MOVE = {"id": "armed/f", "verb": "reroute", "node": "node0", "status": "done"}


class Gateway:
    """Answers with what it was given."""

    def __init__(self, url):
        self.url = url
        self.nics = [{"nic": "node0.rail0", "state": "up", "moved": False}]
        self.later = []
        self.events, self.commands, self.healthy = [], [], True

    def answer(self, path):
        """The status and the body of an answer."""
        if path == "/healthz":  # which is asked once a minute
            for what, record in self.later[:1]:
                getattr(self, what).insert(0, record)
            del self.later[:1]
            return (200 if self.healthy else 503), {}
        answers = {"fleet": [{"nics": self.nics}], "events": self.events, "commands": self.commands}
        return 200, answers[path.removeprefix("/api/v1/").partition("?")[0]]


@pytest.fixture
def gateway():
    """A fleet of one NIC, to which nothing happens."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            status, body = made.answer(self.path)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        made = Gateway(f"http://127.0.0.1:{server.server_port}")
        with contextlib.ExitStack() as stack:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            stack.callback(server.shutdown)
            yield made


def test_each_minute_has_what_came_in_it(gateway):
    """What was there before counts for nothing, and what each of two nodes did by itself for one fault for itself."""
    gateway.commands = [MOVE]
    gateway.later = [("events", EVENT), ("commands", {**MOVE, "node": "node1"})]
    first, second, third = untouched.minutes(gateway.url, 3, 0.0)
    assert (first.events, first.commands, first.told) == (1, 0, ("path node0.rail0>node1.rail0#0 silent",))
    assert (second.events, second.commands, second.told) == (0, 1, ("reroute node1",))
    assert (third.events, third.commands, third.told) == (0, 0, ())


def test_a_gateway_that_hears_nothing_vouches_for_nothing(gateway):
    """It says that it does not do its work."""
    gateway.healthy = False
    with pytest.raises(OSError, match="503"):
        list(untouched.minutes(gateway.url, 1, 0.0))


def test_it_does_not_begin_with_a_fleet_that_is_not_whole(gateway, monkeypatch, capsys):
    """Nor without one."""
    monkeypatch.setattr(sys, "argv", ["untouched", "--gateway", gateway.url])
    gateway.nics = [*gateway.nics, {"nic": "node1.rail0", "state": "admin-down", "moved": True}]
    assert untouched.main() == place.CANNOT
    assert capsys.readouterr().err == "The fleet is not whole: node1.rail0.\n"
    gateway.nics = []
    assert untouched.lacks(gateway.url) == f"The gateway at {gateway.url} knows no node."
    assert untouched.lacks("http://127.0.0.1:1").startswith("No gateway at http://127.0.0.1:1: ")
