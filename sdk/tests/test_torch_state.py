"""The state of a job on its way from rank to rank, and the copies of it that ranks keep."""

from __future__ import annotations

import asyncio
import collections
import enum
import importlib.util
import os
import pickle
import signal
import textwrap
from pathlib import Path
from types import SimpleNamespace

import forked_torch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from patience import patience

if importlib.util.find_spec("torch") is None:
    pytest.skip("make train installs PyTorch", allow_module_level=True)


def setup_module():
    """Imports PyTorch, which takes seconds: where these tests run, and not wherever tests are collected."""
    global torch, CaughtUp, Changes, KeptBuffers, StateLostError, common_step, default_join, Packed, _pieces, Program, Worker  # noqa: PLW0603 - as an import does
    import torch  # noqa: PLC0415 - see above

    from foliot.torch.catch_up import CaughtUp  # noqa: PLC0415 - see above
    from foliot.torch.changes import Changes  # noqa: PLC0415 - see above
    from foliot.torch.kept_buffers import KeptBuffers  # noqa: PLC0415 - see above
    from foliot.torch.mirror import StateLostError, common_step  # noqa: PLC0415 - see above
    from foliot.torch.process_groups import default_join  # noqa: PLC0415 - see above
    from foliot.torch.state_transfer import Packed, _pieces  # noqa: PLC0415 - see above
    from foliot.torch.worker import Program, Worker  # noqa: PLC0415 - see above


class Part:
    """What has a state."""

    def __init__(self, state=None):
        self.state = state

    def state_dict(self):
        """Its state."""
        return self.state

    def load_state_dict(self, state):
        """Takes a state."""
        self.state = state


def trained():
    """A module and its optimizer after a step."""
    torch.manual_seed(1)
    module = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8))
    optimizer = torch.optim.AdamW(module.parameters())
    module(torch.randn(4, 8)).sum().backward()
    optimizer.step()
    return {"module": module, "optimizer": optimizer}


def test_a_module_and_its_optimizer_are_the_same_to_the_bit_in_another_process():
    """Tensors, numbers, and what a module's state has beside its parts."""
    before = trained()
    module = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8))
    after = {"module": module, "optimizer": torch.optim.AdamW(module.parameters(), lr=0.5)}

    Packed.of(before).give_to(after)

    for name, tensor in before["module"].state_dict().items():
        assert torch.equal(tensor, after["module"].state_dict()[name])
    was, now = before["optimizer"].state_dict(), after["optimizer"].state_dict()
    assert was["param_groups"] == now["param_groups"]
    assert all(torch.equal(was["state"][0][name], now["state"][0][name]) for name in ("step", "exp_avg", "exp_avg_sq"))


def test_containers_of_any_depth_survive():
    """Lists, tuples, maps, tensors of every shape, and what is no tensor."""
    state = {
        "a": [torch.ones(2), (torch.zeros(()), "b")],
        3: {"c": torch.empty(0), "d": None},
        "e": torch.tensor([True]),
    }
    part = Part()

    Packed.of({"part": Part(state)}).copied().give_to({"part": part})

    assert torch.equal(part.state["a"][0], torch.ones(2))
    assert part.state["a"][1][0].shape == ()
    assert part.state["a"][1][1] == "b"
    assert part.state[3]["c"].numel() == 0
    assert part.state[3]["d"] is None
    assert part.state["e"].dtype == torch.bool


_scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
_keys = _scalars | st.tuples(_scalars, _scalars) | st.frozensets(_scalars)


@given(st.recursive(
    _scalars | st.complex_numbers(allow_nan=False) | st.sets(_scalars),
    lambda each: st.lists(each) | st.lists(each).map(tuple) | st.dictionaries(_keys, each),
    max_leaves=12,
))  # fmt: skip
def test_plain_values_come_through_as_they_are(state):
    """With their classes: to an optimizer, a tuple is no list."""
    part = Part()

    Packed.of({"part": Part(state)}).give_to({"part": part})

    assert repr(part.state) == repr(state) or (type(part.state), part.state) == (type(state), state)


def test_what_states_of_pytorch_have_besides_comes_through():
    """Its own kinds of values, and those of the module `collections`."""
    ordered = collections.OrderedDict(b=1, a=torch.ones(1))
    ordered._metadata = {"": {"version": 2}}
    state = [
        ordered, collections.Counter({3: 2}), collections.defaultdict(list, {"a": [1]}), collections.defaultdict(None),
        torch.bfloat16, torch.Size([2, 3]), torch.device("cuda:1"), bytearray(b"x"), float("-inf"), 2**70,
    ]  # fmt: skip
    part = Part()

    Packed.of({"part": Part(state)}).give_to({"part": part})

    assert part.state == state
    assert [*map(type, part.state)] == [*map(type, state)]
    assert part.state[0]._metadata == ordered._metadata
    assert part.state[2]["b"] == []


@pytest.mark.parametrize(
    "make",
    [
        lambda optimizer: torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 4]),
        lambda optimizer: torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.3, total_steps=9),
        lambda optimizer: torch.optim.lr_scheduler.SequentialLR(
            optimizer,
            [torch.optim.lr_scheduler.LinearLR(optimizer), torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 5)],
            milestones=[2],
        ),
    ],
)
def test_a_schedule_goes_on_elsewhere(make):
    """At the same rate, with the same one to follow."""

    def scheduled():
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1, momentum=0.9)
        return {"optimizer": optimizer, "schedule": make(optimizer)}

    def steps(parts, count):
        for _ in range(count):
            parts["optimizer"].step()
            parts["schedule"].step()
        return parts["schedule"].get_last_lr()

    before, after = scheduled(), scheduled()
    steps(before, 3)

    Packed.of(before).give_to(after)

    assert steps(after, 2) == steps(before, 2)


class Colour(enum.IntEnum):
    """A class of a program's own."""

    RED = 1


@pytest.mark.parametrize(
    ("foreign", "said"),
    [
        (Path("x"), r"pathlib\.PosixPath"),
        (Colour.RED, r"Colour"),
        (collections.namedtuple("Pair", "a b")(1, 2), r"Pair"),  # noqa: PYI024 - its fields do not matter
        (collections.defaultdict(lambda: 1), "a defaultdict of <function"),
        (Part, "builtins.type"),
    ],
)
def test_a_state_that_has_something_else_is_not_sent(foreign, said):
    """The error says where it is, and of which class."""
    with pytest.raises(TypeError, match=rf"the state of 'loader' cannot go to another rank: it has .*{said}"):
        Packed.of({"loader": Part({"deep": [foreign]})})


class Code:
    """A pickle that makes a file as it is read."""

    def __init__(self, file):
        self.file = file

    def __reduce__(self):
        return Path.touch, (self.file,)


def test_a_hostile_rank_has_no_code_run(tmp_path):
    """Any process may have become a spare, and been given a rank."""
    with pytest.raises(ValueError, match="no state of a rank"):
        Packed(pickle.dumps({"part": Code(tmp_path / "ran")}), []).give_to({"part": Part()})

    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "skeleton",
    [
        b"", b"[]", b"\xff", b'{"a":{}}', b'{"a":{"eval":"1"}}', b'{"a":{"tensor":["eval",[1]]}}', b'{"a":{"dict":1}}',
        b'{"a":{"defaultdict":["eval",[]]}}', b'{"a":{"device":"x"}}', b'{"a":{"tensor":["int8",[1]]}}', b"[" * 100_000,
        b'{"a":{"tensor":["int8",[-1]]}}', b'{"a":{"tensor":["int8",[1.5]]}}', b'{"a":{"tensor":["int8",[true]]}}',
        b'{"a":{"tensor":["int8",[1048576,1048576,2]]}}', b'{"a":{"tensor":["int8","1"]}}',
    ],
)  # fmt: skip
def test_what_is_no_state_is_refused(skeleton):
    """Whatever it is."""
    with pytest.raises(ValueError, match="no state of a rank"):
        Packed(skeleton, []).give_to({"a": Part()})


def test_a_copy_does_not_change_with_what_it_is_of():
    """A step after the copy is none of it."""
    tensor = torch.zeros(3)
    kept = Packed.of({"part": Part({"t": tensor})}).copied()
    tensor += 1
    part = Part()

    kept.give_to({"part": part})

    assert part.state["t"].tolist() == [0, 0, 0]


def test_a_part_that_is_not_there_is_named():
    """Another program's state is not taken in silence."""
    with pytest.raises(KeyError, match="schedule"):
        Packed.of({"schedule": Part({})}).give_to({"model": Part()})


@given(st.lists(st.integers(0, 3_000_000), max_size=6))
def test_both_ends_cut_a_stream_into_the_same_pieces(sizes):
    """Whatever the sizes are: nothing is left out, and all pieces but the last have one size."""
    pieces = [
        sum(len(each) for each in slices)
        for slices in _pieces([torch.empty(size, dtype=torch.uint8) for size in sizes])
    ]

    assert sum(pieces) == sum(sizes)
    assert all(piece == 1 << 20 for piece in pieces[:-1])


def test_a_large_buffer_is_what_it_was_too():
    """It is copied when it was written to."""
    module = torch.nn.Module()
    module.register_buffer("large", torch.zeros(1 << 19))
    buffers = KeptBuffers([module])
    buffers.begin()
    module.large.add_(1)
    buffers.keep()
    module.large.add_(1)

    buffers.put_back()

    assert module.large.unique().tolist() == [1]


def test_a_buffer_that_the_program_puts_in_the_place_of_another_is_put_back():
    """As by `self.count = self.count + 1`, before the step's end and after it."""
    module = torch.nn.Module()
    module.register_buffer("count", torch.zeros(()))
    buffers = KeptBuffers([module])
    buffers.begin()
    module.count = module.count + 1
    buffers.keep()
    module.count = module.count + 1

    buffers.put_back()

    assert module.count.item() == 1


def test_buffers_are_what_they_were_when_the_step_began():
    """A step that is done twice does not count twice in a mean over batches."""
    module = torch.nn.BatchNorm1d(4)
    buffers = KeptBuffers([module, Part()])
    buffers.begin()
    module(torch.randn(8, 4))
    buffers.keep()
    mean, count = module.running_mean.clone(), int(module.num_batches_tracked)
    module(torch.randn(8, 4))

    buffers.put_back()

    assert torch.equal(module.running_mean, mean)
    assert int(module.num_batches_tracked) == count


@pytest.fixture
def survivor(monkeypatch):
    """A worker of a group that broke. `gave` are the buffer and the step with which it came to the next one."""

    class Link:
        def say(self, **_):
            """Nobody listens."""

    model = torch.nn.BatchNorm1d(2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    worker = object.__new__(Worker)
    worker._program = Program({"model": model, "optimizer": optimizer}, {}, default_join, None, 0, None, 1, 1.0, 1800.0)
    worker._buffers, worker._changes = KeptBuffers([model]), Changes([model, optimizer], lambda: None)
    worker._mirror, worker._has_state, worker.step, worker._link = None, True, 7, Link()
    worker._begin_steps()
    worker.gave = []

    def catch_up(state, step, device):
        worker.gave.append((int(model.num_batches_tracked), step))
        return CaughtUp(step)

    monkeypatch.setattr("foliot.torch.worker.catch_up", catch_up)
    monkeypatch.setattr("foliot.torch.worker.tensors_device", lambda: torch.device("cpu"))
    model(torch.randn(4, 2)).sum().backward()
    return worker


def test_buffers_that_a_step_changed_are_given_to_others_as_they_were_before_it(survivor):
    """A survivor gives its state to a spare: what the step that failed had written is not in it."""
    survivor._catch_up()

    assert survivor.gave == [(0, 7)]


def test_who_was_changing_its_parameters_has_no_whole_state(survivor):
    """From the optimizer's step on, until the next step of the job begins."""
    survivor._program.state["optimizer"].step()
    survivor._catch_up()
    survivor.step = 8
    survivor._begin_steps()
    survivor._catch_up()

    assert [step for _, step in survivor.gave] == [-1, 8]


def test_a_state_that_nobody_can_be_given_is_found_at_the_end_of_the_first_step(survivor):
    """And not when a rank is lost. By then, optimizers have their state."""
    survivor._waits, survivor._is_checked = SimpleNamespace(check=lambda: None), False
    survivor._program = survivor._program._replace(state={"loader": Part({"at": Path("x")})})

    with pytest.raises(TypeError, match="'loader' cannot go to another rank"):
        survivor.end_step()


def test_a_job_goes_back_to_the_newest_step_of_which_all_have_copies():
    """One rank is new, one has not got as far as the others."""
    assert common_step([(12, 11), (11, 10), (-1, -1), (12, 11)]) == 11


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        ([(12, 11), (-1, -1), (-1, -1), (12, 11)], "rank 1 is lost"),
        ([(-1, -1), (12, 11), (12, 11), (-1, -1)], "rank 3 is lost"),
        ([(12, 11), (10, 9), (-1, -1)], "no step"),
    ],
)
def test_what_no_copies_can_bring_back_is_said(kept, said):
    """Two neighbours are lost, the last and the first likewise, or the copies are of different steps."""
    with pytest.raises(StateLostError, match=said):
        common_step(kept)


EXCHANGE = textwrap.dedent(
    """
    import os, sys
    import torch
    import torch.distributed as dist
    from foliot.torch.state_transfer import Packed, exchange, receive, send

    class Part:
        def __init__(self, state=None):
            self.state = state
        def state_dict(self):
            return self.state
        def load_state_dict(self, state):
            self.state = state

    rank = int(sys.argv[1])
    dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}/store", rank=rank, world_size=3)
    cpu = torch.device("cpu")
    # Of different sizes, the largest in many pieces: none waits for one that waits for it.
    own = Packed.of({"part": Part({"of": rank, "tensor": torch.full((rank * 5_000_000 + 1,), float(rank))})})
    part = Part()
    exchange(own, (rank + 1) % 3, (rank - 1) % 3, cpu).give_to({"part": part})
    before = (rank - 1) % 3
    assert part.state["of"] == before
    assert torch.equal(part.state["tensor"], torch.full((before * 5_000_000 + 1,), float(before)))
    if rank == 2:
        send(own, (0, 1), cpu)
    else:
        receive(2, cpu).give_to({"part": part})
        assert part.state["of"] == 2 and part.state["tensor"].sum() == 20_000_002
    dist.barrier()
    os._exit(0)
    """
)


async def test_ranks_exchange_states_over_a_real_group(tmp_path):
    """Each sends to the next while it hears from the one before, and one sends to two."""
    (tmp_path / "rank.py").write_text(EXCHANGE)
    with (tmp_path / "said").open("wb") as said:
        ranks = [
            forked_torch.start(tmp_path / "rank.py", str(rank), str(tmp_path), env=os.environ, stderr=said.fileno())
            for rank in range(3)
        ]
    try:
        async with asyncio.timeout(patience(180)):
            ended = [await rank.wait() for rank in ranks]
    finally:
        for rank in ranks:
            rank.send_signal(signal.SIGKILL)
            await rank.wait()

    assert ended == [0, 0, 0], (tmp_path / "said").read_text()
