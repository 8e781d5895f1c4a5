"""What a job's program may do with its process, and its ranks can be replaced still."""

from __future__ import annotations

import importlib
import importlib.util
import os
import resource
import socket

import pytest

pytest.importorskip("torch", reason="make train installs PyTorch")


def test_a_look_at_connections_leaves_them_as_they_are():
    """A program that sets a time limit for its sockets has them wait as before."""
    from foliot.torch.group_sockets import GroupSockets  # noqa: PLC0415 - needs PyTorch

    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as own:
        socket.setdefaulttimeout(10)
        try:
            assert GroupSockets().is_whole is False
        finally:
            socket.setdefaulttimeout(None)
        assert os.get_blocking(own.fileno())


def test_a_worker_listens_that_has_many_files_open():
    """Files beyond the 1,024 that select(2) takes."""
    from foliot.torch.worker_link import WorkerLink  # noqa: PLC0415 - needs PyTorch

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


def test_buffers_that_a_step_changed_are_given_to_others_as_they_were_before_it():
    """A survivor gives its state to a spare: what the step that failed had written is not in it."""
    torch = pytest.importorskip("torch")
    groups = importlib.import_module("foliot.torch.groups")

    given = []

    def catch_up(state, step, device):
        given.append(int(model.num_batches_tracked))
        return groups.CaughtUp(step)

    class Link:
        def say(self, **_):
            """Nobody listens."""

    model = torch.nn.BatchNorm1d(2)
    worker = object.__new__(groups.Worker)
    worker._program = groups.Program({"model": model}, {}, groups.default_join, None, 0, None, 1, 1.0)
    worker._buffers, worker._mirror, worker._has_state, worker.step = groups.KeptBuffers([model]), None, True, 0
    worker._link = Link()
    worker._buffers.begin()
    model(torch.randn(4, 2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(groups, "catch_up", catch_up)
        patch.setattr(groups, "_device", lambda: torch.device("cpu"))
        worker._catch_up()
    assert given == [0]
