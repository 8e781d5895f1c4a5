"""What the tests of several packages share without asking for it."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import pytest

from bench import document

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True, scope="session")
def machine_measured_once() -> Iterator[None]:
    """Lets benches measure once in a process how fast the machine is, and not whenever they write a document.

    That took longer than all else that most tests of benches do. No figure of theirs is kept.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(document, "fixed_work_s", functools.cache(document.fixed_work_s))
        yield
