"""Compiled code is used where it is there, fits, and is not turned off."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
import structlog.testing

from foliot import native


@pytest.fixture
def package(monkeypatch, tmp_path):
    """Stands in for `foliot_native`, with one module; nothing was asked for yet."""
    (tmp_path / "hull.py").touch()
    stand_in, module = ModuleType("foliot_native"), ModuleType("foliot_native.hull")
    stand_in.__path__, stand_in.INTERFACE = [str(tmp_path)], native._INTERFACE
    monkeypatch.setitem(sys.modules, "foliot_native", stand_in)
    monkeypatch.setitem(sys.modules, "foliot_native.hull", module)
    monkeypatch.setattr(native, "_asked", {})
    monkeypatch.delenv("FOLIOT_NATIVE", raising=False)
    return stand_in


def told():
    """What a process logs of its choice."""
    with structlog.testing.capture_logs() as lines:
        native.tell()
    return lines


def test_a_module_that_is_there_is_given(package):
    """And the log says so, without a reason."""
    assert native.compiled("hull") is sys.modules["foliot_native.hull"]
    assert native.why_python() == ""
    assert told() == [{"event": "native_code", "log_level": "info", "compiled": ["hull"]}]


def test_off_means_python(package, monkeypatch):
    """Also where all is there."""
    monkeypatch.setenv("FOLIOT_NATIVE", "off")
    assert native.compiled("hull") is None
    assert told() == [
        {
            "event": "native_code", "log_level": "info", "compiled": [], "python": ["hull"],
            "why": "FOLIOT_NATIVE is off",
        }
    ]  # fmt: skip


def test_without_the_package_it_is_python(package, monkeypatch):
    """As on a host without a compiler: no warning."""
    monkeypatch.setitem(sys.modules, "foliot_native", None)
    assert native.compiled("hull") is None
    (line,) = told()
    assert (line["log_level"], line["why"]) == ("info", "foliot-native is not installed")


def test_a_package_for_other_calls_is_not_used(package):
    """One that an update left behind may have functions of the same names that want something else."""
    package.INTERFACE = native._INTERFACE + 1
    assert native.compiled("hull") is None
    assert "interface" in native.why_python()


def test_a_folder_that_a_package_left_behind_is_not_used(package):
    """Python takes it for a package that says nothing of itself."""
    del package.INTERFACE
    assert native.compiled("hull") is None
    assert "interface None" in native.why_python()


def test_a_module_that_does_not_load_is_python_and_the_others_are_used(package):
    """As one of an earlier version, or for another libc; the log names those of both kinds."""
    assert native.compiled("hull") is not None
    assert native.compiled("later") is None
    (line,) = told()
    assert (line["compiled"], line["python"]) == (["hull"], ["later"])
    assert "foliot_native.later cannot be loaded" in line["why"]


@pytest.mark.parametrize(
    "fault", ["ImportError('GLIBC_2.99 not found')", "ValueError('RealtimeMap size changed, of GLIBC_2.99')"]
)
def test_what_does_not_load_is_found_before_a_service_asks_for_it(package, tmp_path, fault):
    """By who looks at a host: a module that fails, or none at all, as for another version of Python.

    The second is what Cython raises where a module meets an older one of another build.
    """
    (tmp_path / "wire.py").write_text(f"raise {fault}")
    assert native.compiled("wire") is None
    assert "GLIBC_2.99" in native.why_python()
    for module in tmp_path.glob("*.py"):
        module.unlink()
    assert "no module" in native.why_python()


def test_a_process_that_asks_for_nothing_says_nothing(package):
    """As a service without inner loops."""
    assert told() == []
