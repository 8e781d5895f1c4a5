"""Settings that cannot work are refused by name."""

from __future__ import annotations

import pytest

from foliot.settings import SettingsError, load, read
from foliot_sync.settings import SyncSettings


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("window_s", "0"),
        ("void_after_windows", "2"),
        ("wander_ppb", "-1"),
        ("slew_ppb", "0"),
        ("steer_ppb_s", "-1"),
        ("timescale", "gps"),
        ("references", '["node3"]'),
        ("asymmetry_ns", '{"node3" = 1}'),
        ("nonsense", "1"),
    ],
)
def test_wrong_value_is_refused_by_name(monkeypatch, key, value):
    """A value out of range, or a key that does not exist, stops the start and names the key."""
    monkeypatch.setenv(f"FOLIOT_SYNC__{key.upper()}", value)
    with pytest.raises(SettingsError, match=key):
        load(SyncSettings, "sync")


def test_keys_of_an_earlier_version_change_nothing():
    """They became constants, and none of them is a key again."""
    document = {"sync": dict.fromkeys(SyncSettings.removed, 1)}

    assert read(SyncSettings, "sync", document, {}, source="test.toml") == SyncSettings()
    assert not SyncSettings.removed & {*SyncSettings.__struct_fields__}


def test_window_in_nanoseconds():
    """A window of 0.1 s has exactly 100,000,000 ns."""
    assert SyncSettings(window_s=0.1).window_ns == 100_000_000


def test_named_clocks_must_be_named(monkeypatch):
    """Nobody's rate cannot be followed."""
    monkeypatch.setenv("FOLIOT_SYNC__TIMESCALE", "nodes")
    with pytest.raises(SettingsError, match="references"):
        load(SyncSettings, "sync")
    monkeypatch.setenv("FOLIOT_SYNC__REFERENCES", '["node3"]')
    assert load(SyncSettings, "sync").references == ("node3",)
