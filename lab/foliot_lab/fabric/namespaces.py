"""Network namespaces without names, which disappear with the lab.

A namespace lives as long as a descriptor of it is open or a process is in it. The lab keeps descriptors only, and ties
its children's lives to its own. So any end of the lab, even SIGKILL, ends all of it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# linux/sched.h, linux/prctl.h and linux/mount.h
CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000
_PR_SET_PDEATHSIG = 1
_MS_REC_PRIVATE = 0x4000 | 0x40000

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(flags: int, what: str) -> None:
    """Replace the parts that the flags name by fresh ones of the process's own, as the manual page says.

    Raises:
        OSError: the kernel does not permit it; the message says what was asked.
    """
    _checked(_libc.unshare(flags), what)


class Namespace:
    """A network namespace, held by a file descriptor."""

    def __init__(self, name: str, fd: int) -> None:
        self.name = name
        self.fd = fd

    @classmethod
    def present(cls, name: str) -> Namespace:
        """The one that the calling thread is in."""
        # thread-self, since `self` would be the main thread's, whichever thread asks.
        return cls(name, os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC))

    @classmethod
    def make(cls, name: str) -> Namespace:
        """A fresh one; the calling thread stays where it is.

        In a user namespace this works only from a namespace that the user namespace owns: `enter_control` comes first.

        Raises:
            OSError: the kernel does not permit it.
        """
        home = cls.present("home")
        try:
            unshare(CLONE_NEWNET, "making a network namespace")
            try:
                return cls.present(name)
            finally:
                enter(home)
        finally:
            home.close()

    def close(self) -> None:
        """Close the descriptor. The kernel removes the namespace once nothing else holds it. May be called twice."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __repr__(self) -> str:
        return f"Namespace({self.name!r}, {self.fd})"


def enter(namespace: Namespace) -> None:
    """Move the calling thread into a namespace, for good.

    Raises:
        OSError: it is closed, or the kernel does not permit it.
    """
    set_namespace(namespace.fd, CLONE_NEWNET, f"entering the network namespace {namespace.name}")


class Entering:
    """What a child calls to start in a namespace, if another process ties it to the lab's life."""

    def __init__(self, namespace: Namespace) -> None:
        self.namespace = namespace

    def __call__(self) -> None:
        """Moves the calling thread there, for good."""
        enter(self.namespace)


def set_namespace(fd: int, kind: int, what: str) -> None:
    """Move the calling thread into the namespace of this kind that a descriptor stands for, see setns(2).

    Raises:
        OSError: the kernel does not permit it; the message says what was asked.
    """
    _checked(_libc.setns(fd, kind), what)


@contextlib.contextmanager
def inside(namespace: Namespace) -> Iterator[None]:
    """Moves the calling thread into the namespace for this block, and back into its own whatever happens.

    Sockets and child processes made in the block stay in the namespace. Never await in it: other tasks share the
    thread.
    """
    home = Namespace.present("home")
    try:
        enter(namespace)
        try:
            yield
        finally:
            enter(home)
    finally:
        home.close()


def make_socket(namespace: Namespace, family: int, kind: int, protocol: int = 0) -> socket.socket:
    """A socket that lives in the namespace and can be used from anywhere."""
    with inside(namespace):
        return socket.socket(family, kind, protocol)


def enter_control() -> Namespace:
    """Leave the host's network and mounts for fresh ones of the lab's own, for good.

    Only the calling thread moves, so call it in the main thread before other threads start. First open everything that
    the host must see, such as the gateway's listening socket.

    Raises:
        OSError: the kernel does not permit it.
    """
    unshare(CLONE_NEWNS | CLONE_NEWNET, "making the lab's network and mount namespaces")
    # Otherwise mounts made here would spread to the host.
    _checked(_libc.mount(None, b"/", None, _MS_REC_PRIVATE, None), "making the lab's mounts private")
    return Namespace.present("control")


def end_with_parent() -> None:
    """Has the kernel kill this process when its parent ends."""
    _checked(_libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "tying a process to its parent's life")


def child_setup(namespace: Namespace | None = None) -> Callable[[], None]:
    """A `preexec_fn`: the child starts in the namespace, and is killed when the thread that started it ends.

    So start children from the main thread. None leaves the child in the namespace of that thread.
    """
    parent = os.getpid()
    fd = -1 if namespace is None else namespace.fd
    # Looked up here, because a forked child had better not import or resolve anything.
    setns, prctl = _libc.setns, _libc.prctl

    def prepare() -> None:
        if fd >= 0:
            _checked(setns(fd, CLONE_NEWNET), "entering the child's network namespace")
        _checked(prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "tying the child to the lab's life")
        if os.getppid() != parent:  # The lab died before the tie was made.
            os._exit(1)

    return prepare
