"""Modules of somebody's own: found, called with the service's name, and refused in a sentence."""

import sys

import msgspec
import pytest

from foliot.runtime.extensions import extend, own_settings
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


class ToySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of a toy."""

    least: int = 3


@pytest.fixture
def config(tmp_path, monkeypatch):
    """Writes the settings file."""

    def write(text):
        (tmp_path / "foliot.toml").write_text(text)
        monkeypatch.setenv("FOLIOT_CONFIG", str(tmp_path / "foliot.toml"))

    return write


@pytest.mark.parametrize(
    ("text", "least"), [("", 3), ("[extensions.toy_extension]\n", 3), ("[extensions.toy_extension]\nleast = 5\n", 5)]
)
def test_an_extension_has_a_table_of_its_own(module, config, text, least):
    """Named after the module; without it all settings are as the extension has them."""
    module("def extend(service):\n    pass\n")
    config(text)
    extend("detector")
    assert own_settings(ToySettings, "toy_extension").least == least


def test_a_wrong_key_of_an_extension_is_named(config):
    """As in Foliot's own tables."""
    config("[extensions.toy_extension]\nmost = 5\n")
    with pytest.raises(SettingsError, match=r"extensions\.toy_extension.*most"):
        own_settings(ToySettings, "toy_extension")


def test_a_table_of_no_module_is_refused(module, config):
    """It may be of one whose name is misspelt, whose settings would be left out without a word."""
    module("def extend(service):\n    pass\n")
    config("[extensions.toy_extenson]\nleast = 5\n")
    with pytest.raises(SettingsError, match=r"extensions\.toy_extenson"):
        extend("detector")


def test_a_module_inside_a_package_has_a_table_too(config):
    """TOML has its name in quotes."""
    config('[extensions."acme.toy"]\nleast = 7\n')
    assert own_settings(ToySettings, "acme.toy").least == 7
