"""What images install: pins that agree with those that everything else is tested with."""

from __future__ import annotations

import importlib.metadata
import importlib.util
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


def test_the_probes_image_has_compiled_code():
    """Compiled by tools that an image to run does not inherit: the stage of the wheels ends no target's chain."""
    text = (ROOT / "Dockerfile").read_text()
    (with_compiler,) = [stage for stage in re.split(r"(?m)^(?=FROM )", text) if re.search(r"install.* gcc\b", stage)]

    assert with_compiler.startswith("FROM tools AS wheels\n")
    assert "FROM wheels" not in text
    assert "$INSTALL_OURS foliot-probe foliot-native\n" in text


def made(variable: str) -> list[str]:
    """The words of a variable of the Makefile."""
    return re.search(rf"^{variable} := (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1].split()


@pytest.mark.parametrize("kind", ["node", "central"])
def test_what_make_installs_on_a_host_has_all_that_it_asks_for(kind):
    """`make node` and `make central`: members of this repository with each other, the rest by hashed requirements."""
    pinned = set().union(*(pins(name) for name in made(f"{kind}_pins")))
    assert pinned - pins("run") == set()
    projects = [
        tomllib.loads((ROOT / member / "pyproject.toml").read_text())["project"] for member in made(f"{kind}_members")
    ]
    installed = {name for name, _ in pinned} | {project["name"] for project in projects}
    for project in projects:
        assert {re.match(r"[\w-]+", each)[0] for each in project["dependencies"]} <= installed, project["name"]


def test_the_units_of_central_services_have_an_installation():
    """Every role is either a node's or central."""
    installed = {Path(member).name for kind in ("node", "central") for member in made(f"{kind}_members")}
    assert set(ROLES) <= installed


@pytest.mark.parametrize("later", ["docs", "train"])
def test_what_is_installed_later_changes_no_version(later):
    """`make docs` and `make train` add to what is installed already."""
    ours, tested = dict(pins(later)), dict(pins("dev"))
    assert {name: ours[name] for name in ours.keys() & tested.keys()} == {
        name: tested[name] for name in ours.keys() & tested.keys()
    }


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed (make train)")
def test_what_every_build_of_pytorch_asks_for_is_hashed():
    """In train.txt, so that pip fetches PyTorch alone, and what a build for GPUs adds."""
    version = importlib.metadata.version("torch")
    asked = {
        re.match(r"[\w-]+", each)[0].lower() for each in importlib.metadata.requires("torch") if "extra" not in each
    }
    named = set(re.findall(r"^([\w-]+)$", (ROOT / "requirements/train.in").read_text(), re.MULTILINE))

    assert version.partition("+")[0] == dict(pins("torch"))["torch"]
    assert named <= asked & {name for name, _ in pins("train")}
    if version.endswith("+cpu"):
        assert named == asked
