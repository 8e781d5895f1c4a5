"""Modules of somebody's own: found, called with the service's name, and refused in a sentence."""

import sys

import pytest

from foliot.runtime.extensions import extend
from foliot.settings import SettingsError


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Writes a module, and names it in the settings."""

    def write(text, name="toy_extension"):
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setenv("FOLIOT_EXTENSIONS__MODULES", f'["{name}"]')
        monkeypatch.delitem(sys.modules, name, raising=False)

    return write


def test_it_is_called_with_the_name_of_the_service(module):
    """So that it can register in each service what belongs there."""
    module("extended = []\nextend = extended.append\n")
    extend("detector")
    extend("gateway")
    assert sys.modules["toy_extension"].extended == ["detector", "gateway"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import no_such_thing\n", "no_such_thing"),
        ("pass\n", "has no attribute 'extend'"),
        ("def extend(service):\n    raise ValueError('flap is there already')\n", "flap is there already"),
    ],
)
def test_what_cannot_be_loaded_stops_the_start_and_says_why(module, text, reason):
    """A service without its extension would quietly do less than its settings say."""
    module(text)
    with pytest.raises(SettingsError, match=r"extensions\.modules: toy_extension") as error:
        extend("probe")
    assert reason in str(error.value)


def test_without_extensions_nothing_is_loaded(monkeypatch):
    """Which is the rule."""
    monkeypatch.delenv("FOLIOT_EXTENSIONS__MODULES", raising=False)
    extend("probe")
