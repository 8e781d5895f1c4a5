"""The detectors, in the order in which they see an observation: Foliot's own, then those of extensions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from foliot_detector.core.detectors.clock_disruption import ClockDisruptionDetector
from foliot_detector.core.detectors.contention.detector import ContentionDetector
from foliot_detector.core.detectors.contention.settings import ContentionSettings
from foliot_detector.core.detectors.delay_threshold.detector import DelayThresholdDetector
from foliot_detector.core.detectors.delay_threshold.settings import DelayThresholdSettings
from foliot_detector.core.detectors.gpu_errors.detector import GpuErrorDetector
from foliot_detector.core.detectors.gpu_errors.settings import GpuErrorSettings
from foliot_detector.core.detectors.job_hang.detector import JobHangDetector
from foliot_detector.core.detectors.job_hang.settings import JobHangSettings
from foliot_detector.core.detectors.packet_loss.path_loss import PathLossDetector
from foliot_detector.core.detectors.path_mismatch.detector import PathMismatchDetector
from foliot_detector.core.detectors.path_mismatch.settings import PathMismatchSettings
from foliot_detector.core.detectors.path_silence.detector import PathSilenceDetector, PathSilenceSettings
from foliot_detector.core.detectors.port_flap.detector import PortFlapDetector
from foliot_detector.core.detectors.port_flap.settings import PortFlapSettings
from foliot_detector.core.detectors.process_down import ProcessDownDetector
from foliot_detector.core.detectors.rank_straggler.detector import RankStragglerDetector
from foliot_detector.core.detectors.rank_straggler.settings import RankStragglerSettings
from foliot_detector.core.state.inventory import InventorySettings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import msgspec

    from foliot_detector.core.protocol import Detector
    from foliot_detector.core.state.inventory import Inventory

DETECTORS: dict[str, Callable[[Inventory, Mapping[type, Any]], Detector]] = {
    "port-flap": lambda inventory, settings: PortFlapDetector(inventory, settings[PortFlapSettings]),
    # Before loss, which leaves alone what is silent.
    "path-silence": lambda inventory, settings: PathSilenceDetector(inventory, settings[PathSilenceSettings]),
    "packet-loss": lambda inventory, _: PathLossDetector(inventory),
    "process-down": lambda inventory, _: ProcessDownDetector(inventory),
    "clock-disruption": lambda *_: ClockDisruptionDetector(),
    "delay-threshold": lambda inventory, settings: DelayThresholdDetector(inventory, settings[DelayThresholdSettings]),
    "path-mismatch": lambda inventory, settings: PathMismatchDetector(inventory, settings[PathMismatchSettings]),
    "contention": lambda inventory, settings: ContentionDetector(inventory, settings[ContentionSettings]),
}
"""Each makes a detector from the inventory and the settings of all parts, by their type."""
CONTAINED: dict[str, Callable[[Inventory, Mapping[type, Any]], Detector]] = {
    "job-hang": lambda inventory, settings: JobHangDetector(inventory, settings[JobHangSettings]),
    "rank-straggler": lambda inventory, settings: RankStragglerDetector(inventory, settings[RankStragglerSettings]),
    "gpu-errors": lambda inventory, settings: GpuErrorDetector(inventory, settings[GpuErrorSettings]),
}
"""Likewise, of detectors whose failure stops no other, as with those of extensions: what they are told comes from
processes of users' own, or from the log of a driver."""
SETTINGS: tuple[type[msgspec.Struct], ...] = (
    InventorySettings,
    PathSilenceSettings,
    PortFlapSettings,
    DelayThresholdSettings,
    PathMismatchSettings,
    ContentionSettings,
    JobHangSettings,
    RankStragglerSettings,
    GpuErrorSettings,
)
"""The parts of the table `[detector]`. Several detectors read the settings of the inventory."""
_OF_EXTENSIONS: dict[str, Callable[[Inventory], Detector]] = {}


def register(name: str, make: Callable[[Inventory], Detector]) -> None:
    """Adds the detector of an extension, which comes after all that are there.

    Parameters:
        make: makes one from the inventory. It knows its settings from the extension's own table.

    Raises:
        ValueError: there is one of this name.
    """
    if name in DETECTORS or name in CONTAINED or name in _OF_EXTENSIONS:
        raise ValueError(f"there is a detector named {name} already")
    _OF_EXTENSIONS[name] = make


def of_extensions(inventory: Inventory) -> dict[str, Detector]:
    """One of each that was registered, by name, in their order."""
    return {name: make(inventory) for name, make in _OF_EXTENSIONS.items()}
