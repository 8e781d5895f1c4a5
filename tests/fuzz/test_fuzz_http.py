"""Whatever is asked over HTTP, the answer is what was asked for or a sentence about what is wrong, never a failure."""

from __future__ import annotations

import time

import hostile
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from litestar.testing import TestClient

from foliot_gateway.http import api
from foliot_gateway.settings import GatewaySettings
from foliot_gateway.state.store import Store
from foliot_gateway.subscription import Hub
from foliot_schemas import Event

SOME = settings(
    max_examples=300, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.generate),
)  # fmt: skip
places = st.sampled_from(
    [
        "fleet",
        "paths",
        "map",
        "clocks",
        "events",
        "events/trace",
        "commands",
        "traces",
        "traces/x",
        "traces/%00",
        "nothing",
    ]
)
texts = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20), st.integers().map(str),
    st.sampled_from(["", "-1", "0", "10001", "9" * 5_000, "1e5", "nan", "flap", "e1", "../..", "\x00", "a" * 7_000]),
)  # fmt: skip
names = ["limit", "kind", "since", "node", "nic", "event", "from", "to", "path", "link", "after", "x"]
queries = st.dictionaries(st.sampled_from(names), texts, max_size=4)
bodies = st.tuples(
    st.binary(max_size=200),
    st.sampled_from(["application/x-protobuf", "application/json", "text/plain", "", "application/json; charset=x"]),
    st.sampled_from(["", "gzip", "deflate", "br", "identity"]),
)


@pytest.fixture(scope="module")
def client():
    """A gateway that knows a little."""
    present = Store(GatewaySettings(), time.time_ns)
    for record in hostile.INVENTORY:
        present.fleet.fold_node(record.name, record)
    present.event(Event(id="e1", kind="clock", who="node0", state="disrupted", at_ns=1, since_ns=1, fault="f"))
    with TestClient(api.make(present, Hub(present))) as connected:
        yield connected


@SOME
@given(place=places, query=queries)
def test_any_query_has_an_answer(client, place, query):
    """200, or 400 or 404 with a problem that says why."""
    answer = client.get(f"/api/v1/{place}", params=query)
    assert answer.status_code in {200, 400, 404}
    if answer.status_code != 200:
        assert answer.json()["detail"]


@SOME
@given(body=bodies)
def test_any_body_of_spans_has_an_answer(client, body):
    """Taken, or refused with the status that the protocol has for it."""
    data, media_type, coding = body
    answer = client.post("/v1/traces", content=data, headers={"content-type": media_type, "content-encoding": coding})
    assert answer.status_code in {200, 400, 413, 415}
