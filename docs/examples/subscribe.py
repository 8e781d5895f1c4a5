"""Listens to Foliot with nothing but nats-py and msgspec: events and outcomes as they come, and those missed meanwhile.

    pip install nats-py msgspec
    python subscribe.py nats://127.0.0.1:4222
    python subscribe.py nats://127.0.0.1:4222 keys/tools/my-tool.creds my-tool    # where the bus asks who you are

Copy it, and put what your tool does in place of `print`.
"""

import asyncio
import math
import re
import sys
from collections import OrderedDict
from pathlib import Path

import msgspec
import nats
import nats.errors
import nats.js.errors
from nats.js.api import ConsumerConfig, DeliverPolicy

TOOL = "example-tool"
"""Names your durable consumer. Use a name of your own: whoever shares it shares the messages."""
SEEN = 10_000
FORBIDDEN: list[str] = []
"""Answers of the bus that it does not permit a thing. A request that it refuses so is never answered."""


class Event(msgspec.Struct, tag="event.v1"):
    """The fields that this tool needs; all others are ignored."""

    id: str
    kind: str
    who: str
    state: str
    at_ns: int
    fault: str = ""
    evidence: dict[str, float | int | str | bool] = {}


class Outcome(msgspec.Struct, tag="outcome.v1"):
    """The report of a node about a command, or of a move of its own."""

    id: str
    node: str
    verb: str
    status: str
    fault: str = ""


class ClockState(msgspec.Struct, tag="clock.v1"):
    """How to read the reference time off a clock."""

    clock: str
    status: str
    offset_ns: int
    drift_ppb: float
    bound_ns: int
    growth_ppb: float
    wander_ppb: float
    as_of_ns: int
    void_after_ns: int

    def read(self, local_ns: int) -> tuple[int, int] | None:
        """Reference time and its bound at a local time (CLOCK_MONOTONIC_RAW of that host); None: do not trust it."""
        if self.status not in ("synchronised", "holdover") or local_ns > self.void_after_ns:
            return None
        age_s = (local_ns - self.as_of_ns) * 1e-9
        bound_ns = math.hypot(self.bound_ns + self.growth_ppb * abs(age_s), self.wander_ppb * abs(age_s) ** 1.5)
        return local_ns + self.offset_ns + round(self.drift_ppb * age_s), round(bound_ns)


DECODER = msgspec.msgpack.Decoder(Event | Outcome | ClockState)


def unescape(token: str) -> str:
    """The name that a token of a subject, or a key of a bucket, stands for: ``node3_2erail0`` is ``node3.rail0``."""
    return re.sub("_([0-9a-f]{2})", lambda match: chr(int(match[1], 16)), token).encode("latin-1").decode()


class Listener:
    """Takes each message once, whichever way it comes."""

    def __init__(self) -> None:
        self.seen: OrderedDict[str, None] = OrderedDict()

    async def take(self, raw) -> None:
        """The plain subscription brings it at once, the durable consumer once more: the id tells."""
        try:
            message = DECODER.decode(raw.data)
        except msgspec.MsgspecError as error:  # a newer version, or not for us
            print("skipped", raw.subject, error, flush=True)
            return
        if isinstance(message, ClockState):
            print("clock", message.clock, message.status, message.read(message.as_of_ns), flush=True)
            return
        if message.id in self.seen:
            return
        self.seen[message.id] = None
        if len(self.seen) > SEEN:
            self.seen.popitem(last=False)
        trace = (raw.headers or {}).get("traceparent", "--").split("-")[1]
        if isinstance(message, Event):
            print("event", message.id, message.who, message.state, trace, flush=True)
        else:
            print("outcome", message.id, message.node, message.status, trace, flush=True)


async def catch_up(jetstream, stream: str, subject: str, take) -> None:
    """All messages kept since this tool was last here, and from then on everything, as sure as can be."""
    config = ConsumerConfig(deliver_policy=DeliverPolicy.NEW, ack_wait=30)
    durable = f"{TOOL}-{stream.lower()}"
    consumer = None
    while True:
        try:
            if consumer is None:
                consumer = await jetstream.pull_subscribe(subject, durable=durable, stream=stream, config=config)
            for raw in await consumer.fetch(64, timeout=5):
                await take(raw)
                await raw.ack()  # after the work: what is not acknowledged comes again
        except nats.errors.TimeoutError:
            continue  # nothing new
        except nats.errors.Error as error:
            print("waiting for the bus:", reason(error), flush=True)
            await asyncio.sleep(1)


def reason(error: Exception) -> str:
    """In words; several of nats-py's and asyncio's errors have none of their own."""
    if isinstance(error, nats.js.errors.APIError):
        return error.description or "JetStream does not answer; start nats-server with --jetstream"
    if isinstance(error, asyncio.TimeoutError):
        return "no answer in time"
    return str(error).removeprefix("nats: ") or type(error).__name__


async def trouble(error: Exception) -> None:
    """Errors that nats-py tells in passing: a server that is away, a subject that is forbidden."""
    if "permissions violation" in str(error).lower():
        FORBIDDEN.append(str(error))
    print("the bus:", reason(error), file=sys.stderr, flush=True)


def check(credentials: str) -> None:
    """Ends if there is no such file: nats-py would not say which."""
    try:
        Path(credentials).read_bytes()
    except OSError as error:
        sys.exit(f"The credentials {credentials} cannot be read: {error.strerror}")


async def main(url: str = "nats://127.0.0.1:4222", credentials: str = "", name: str = "") -> None:
    """Connects and listens until interrupted."""
    # A busy machine may need more than the two seconds that nats-py gives it.
    options = {"name": TOOL, "error_cb": trouble, "connect_timeout": 10}
    if credentials:  # made by `foliot keys tool NAME`; answers come to an inbox that nobody else may listen at
        check(credentials)
        options |= {"user_credentials": credentials, "inbox_prefix": f"_INBOX.reader.{name}"}
    try:  # once without patience, to say what is wrong
        await (await nats.connect(url, allow_reconnect=False, max_reconnect_attempts=1, **options)).close()
    except Exception as error:  # noqa: BLE001 - credentials that cannot be read raise what they like
        who = f" with {credentials}" if credentials else ""
        sys.exit(f"There is no way onto the bus at {url}{who}: {reason(error)}")
    # Then to stay: nats-py gives up after 60 attempts unless it is told not to.
    client = await nats.connect(url, max_reconnect_attempts=-1, **options)
    jetstream = client.jetstream()
    listener = Listener()
    for subject in ("foliot.v1.event.>", "foliot.v1.outcome.>", "foliot.v1.clock.*"):
        await client.subscribe(subject, cb=listener.take)  # in a fraction of a millisecond, and lost while away

    # The present state of every node, one key each.
    inventory = await jetstream.key_value("inventory")
    info = await jetstream.stream_info("KV_inventory", subjects_filter="$KV.inventory.>")
    for subject in info.state.subjects or {}:
        key = subject.rpartition(".")[2]
        node = msgspec.msgpack.decode((await inventory.get(key)).value)
        print("node", unescape(key), [nic["name"] for nic in node["nics"]], flush=True)

    await asyncio.gather(
        catch_up(jetstream, "EVENTS", "foliot.v1.event.>", listener.take),
        catch_up(jetstream, "OUTCOMES", "foliot.v1.outcome.>", listener.take),
    )


if __name__ == "__main__":
    if len(sys.argv) not in (1, 2, 4):
        sys.exit(__doc__)
    try:
        asyncio.run(main(*sys.argv[1:]))
    except KeyboardInterrupt:
        pass
    except nats.js.errors.BucketNotFoundError:
        sys.exit("The bus has no bucket inventory yet: none of Foliot's services has run on it.")
    except nats.errors.Error as error:
        doubt = ""
        if FORBIDDEN and isinstance(error, nats.errors.TimeoutError) and len(sys.argv) == 4:
            doubt = f". It forbade something before: the name {sys.argv[3]} may not fit the credentials {sys.argv[2]}"
        sys.exit(f"The bus cannot be listened to: {reason(error)}{doubt}")
