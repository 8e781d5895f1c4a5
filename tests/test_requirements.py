"""What images install: pins that agree with those that everything else is tested with."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROLES = sorted(path.parent.name for path in ROOT.glob("services/*/pyproject.toml"))
IMAGES = (*ROLES, "keys")
"""`keys` is the sdk, with what it needs to make keys."""


def pins(name: str) -> set[tuple[str, str]]:
    """Name and version of each requirement in a file."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    return set(re.findall(r"^([\w-]+)==(\S+)", text, re.MULTILINE))


@pytest.mark.parametrize("role", IMAGES)
def test_an_image_has_the_versions_that_were_tested(role):
    """`make pins` was run after the last change of a version."""
    assert pins(role)
    assert pins(role) - pins("run") == set()


@pytest.mark.parametrize("role", IMAGES)
def test_an_image_has_what_its_member_asks_for(role):
    """`make pins` was run after the last change of a member's dependencies."""
    folder = ROOT / ("sdk" if role == "keys" else f"services/{role}")
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    extra = project["optional-dependencies"]["keys"] if role == "keys" else []
    asked = {re.match(r"[\w-]+", each)[0] for each in (*project["dependencies"], *extra)}

    assert {name for name in asked if not name.startswith("foliot")} <= {name for name, _ in pins(role)}


@pytest.mark.parametrize(
    ("role", "base", "member"),
    [*((role, "service", f"foliot-{role}") for role in ROLES), ("keys", "python", '"foliot[keys]"')],
)
def test_every_role_has_an_image(role, base, member):
    """With its own pins and its own member."""
    text = (ROOT / "Dockerfile").read_text()

    for line in (f"FROM {base} AS {role}", f"COPY requirements/{role}.txt", f"$INSTALL_OURS {member}"):
        assert line in text
