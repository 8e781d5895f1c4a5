"""Settings: presets, what replaces them, and what is refused."""

from __future__ import annotations

import pytest

from foliot.settings import SettingsError, read
from foliot_detector.core.detectors.contention.settings import ContentionSettings
from foliot_detector.core.detectors.delay_threshold.settings import DelayThresholdSettings
from foliot_detector.core.detectors.gpu_errors.settings import GpuErrorSettings
from foliot_detector.core.detectors.job_hang.settings import JobHangSettings
from foliot_detector.core.detectors.path_mismatch.settings import PathMismatchSettings
from foliot_detector.core.detectors.path_silence.detector import PathSilenceSettings
from foliot_detector.core.detectors.port_flap.settings import PortFlapSettings
from foliot_detector.core.detectors.rank_straggler.settings import RankStragglerSettings
from foliot_detector.core.registry import SETTINGS
from foliot_detector.core.state.inventory import InventorySettings
from foliot_detector.flap_rules import PRESETS, Rule
from foliot_detector.settings import DetectorSettings


def load(**values):
    """The settings from a file with these values."""
    return read(DetectorSettings, "detector", {"detector": values}, {}, source="test.toml")


def rule(**values):
    """The rule for ports."""
    return load(**values).parts()[PortFlapSettings].rule()


def test_the_table_is_composed_of_what_lies_beside_the_detectors():
    """It is flat, so no two parts have the same key."""
    keys = [key for kind in SETTINGS for key in kind.__struct_fields__]

    assert len(keys) == len({*keys})
    given = {"report_ms": 50.0, "calm_s": 5.0, "flap_rule": "azure", "contention_share": 0.7, "straggler_share": 0.2}
    assert load(**given, xid={"31": "failed"}).parts() == {
        InventorySettings: InventorySettings(report_ms=50.0),
        PathSilenceSettings: PathSilenceSettings(calm_s=5.0),
        PortFlapSettings: PortFlapSettings(flap_rule="azure"),
        DelayThresholdSettings: DelayThresholdSettings(),
        PathMismatchSettings: PathMismatchSettings(),
        ContentionSettings: ContentionSettings(contention_share=0.7),
        JobHangSettings: JobHangSettings(),
        RankStragglerSettings: RankStragglerSettings(straggler_share=0.2),
        GpuErrorSettings: GpuErrorSettings(xid={"31": "failed"}),
    }


def test_without_a_file_routers_of_cisco_are_the_model():
    """All values have defaults."""
    assert rule() == PRESETS["cisco"]


def test_a_preset_may_be_changed_in_part():
    """The rest stays the preset's."""
    assert rule(flap_rule="juniper", half_life_s=5.0) == Rule(suppress=3000.0, half_life_s=5.0)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"flap_rule": "huawei"}, "detector.flap_rule: "),
        ({"half_life_s": -1.0}, "detector.half_life_s: expected `float` > 0.0"),
        ({"contention_share": 0.95}, "detector.contention_share: expected `float` < 0.9"),
        ({"process_silence_s": 0.0}, "detector.process_silence_s: expected `float` > 0.0"),
        ({"reuse": 5_000.0}, "reuse: must lie below suppress"),
        ({"max_suppress_s": 60.0}, "max_suppress_s: 60 s caps the penalty"),
        ({"hlaf_life_s": 1.0}, "detector.hlaf_life_s: object contains unknown field"),
        ({"xid": {"79": "broken"}}, "detector.xid"),
        ({"xid": {"nine": "failed"}}, "xid: 'nine' is no number of an error"),
        ({"xid": {"65536": "failed"}}, "xid: '65536' is no number of an error"),
        ({"calm_s": "long"}, "detector.calm_s: expected `float`, got `str`"),
    ],
)
def test_a_wrong_value_is_refused_by_its_name(values, said):
    """A misspelt key, a number out of range, and numbers that contradict each other."""
    with pytest.raises(SettingsError, match=said):
        load(**values)


def test_keys_of_an_earlier_version_change_nothing():
    """They became constants, and none of them is a key again."""
    assert load(**dict.fromkeys(DetectorSettings.removed, 1)) == load()
    assert not DetectorSettings.removed & {*DetectorSettings.__struct_fields__}
