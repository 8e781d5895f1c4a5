"""The systemd units of a node: installs, starts, stops and removes them."""

from __future__ import annotations

import importlib.resources
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from foliot.node.identity_claims import host_id
from foliot_agent.install.settingsfile import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from foliot.settings import BusSettings
    from foliot_agent.install.tracked_files import Files

UNITS = ("foliot-agent.service", "foliot-probe.service")
_FOLDER = "etc/systemd/system"
_WANTED_BY = f"{_FOLDER}/multi-user.target.wants"
_HIDDEN = ("/home", "/root", "/run/user", "/tmp", "/var/tmp")  # noqa: S108 - places that the units cannot see
_START_S = 120.0
_CLOCKS_HANDED_OVER = (
    "# `nic_stamps` of [probe]: it reads the clocks in NICs, and can set none.\n"
    "[Service]\nSupplementaryGroups=foliot-ptp\nDeviceAllow=char-ptp r\nBindReadOnlyPaths="
    + " ".join(f"-/dev/ptp{number}" for number in range(32))
    + "\n"
)
_CLOCKS_GROUP = {
    "etc/sysusers.d/foliot-ptp.conf": "g foliot-ptp - -\n",
    "etc/udev/rules.d/60-foliot-ptp.rules": 'SUBSYSTEM=="ptp", GROUP="foliot-ptp", MODE="0640"\n',
}
"""Who may read the clocks in NICs: a group that has no user but the probe."""
_MAKE_GROUP = (
    ("systemd-sysusers", "/etc/sysusers.d/foliot-ptp.conf"),
    ("udevadm", "control", "--reload"),
    ("udevadm", "trigger", "--subsystem-match=ptp", "--settle"),
)
_SETTINGS_HANDED_OVER = f"[Service]\nLoadCredential=foliot.toml:/{SETTINGS}\nEnvironment=FOLIOT_CONFIG=%d/foliot.toml\n"


class UnitError(Exception):
    """systemd refused; the message is its own."""


def text(unit: str) -> str:
    """A unit, for this interpreter and host."""
    template = importlib.resources.files("foliot_agent.install").joinpath("units", unit).read_text()
    return template.replace("@PYTHON@", sys.executable).replace("@HOST@", host_id())


def want(files: Files, bus: BusSettings, *, nic_clocks: bool = False) -> None:
    """Wants the units, and that they start with the host. systemd hands them the files that not everybody may read.

    Parameters:
        nic_clocks: the probe may read the clocks in NICs.
    """
    for unit in UNITS:
        secrets = {}
        if bus.credentials:
            path = Path(bus.credentials)
            own = path / f"{unit.removeprefix('foliot-').removesuffix('.service')}.creds"
            secrets["credentials"] = own if path.is_dir() else path
        if bus.ca:
            secrets["ca"] = Path(bus.ca)
        _want_drop_in(files, unit, "bus.conf", _handed_over(secrets) if secrets else "")
        _want_drop_in(files, unit, "settings.conf", "" if files.is_for_all(SETTINGS) else _SETTINGS_HANDED_OVER)
        files.want(f"{_FOLDER}/{unit}", text(unit))
        files.want_link(f"{_WANTED_BY}/{unit}", f"/{_FOLDER}/{unit}")
    _want_drop_in(files, UNITS[1], "nic-clocks.conf", _CLOCKS_HANDED_OVER if nic_clocks else "")
    for file, content in _CLOCKS_GROUP.items():
        if nic_clocks:
            files.want(file, content)
        else:
            files.unwant(file)


def want_key(files: Files, path: Path | None) -> None:
    """Lets the agent read the key file of its settings: systemd hands it over. None: it need not."""
    text = f"[Service]\nLoadCredential=fleet.key:{path}\nEnvironment=FOLIOT_AGENT__KEY_FILE=%d/fleet.key\n"
    _want_drop_in(files, UNITS[0], "key.conf", text if path else "")


def _want_drop_in(files: Files, unit: str, name: str, text: str) -> None:
    """Wants a drop-in of a unit; without text, none that an earlier join wrote."""
    path = f"{_FOLDER}/{unit}.d/{name}"
    if text:
        files.want(path, text)
    else:
        files.unwant(path)


def _handed_over(secrets: Mapping[str, Path]) -> str:
    lines = ["[Service]"]
    for key, path in secrets.items():
        lines += [f"LoadCredential={key}:{path}", f"Environment=FOLIOT_BUS__{key.upper()}=%d/{key}"]
    return "\n".join(lines) + "\n"


def hidden_interpreter() -> str:
    """The path of the interpreter, if the units could not see it there; else empty."""
    paths = (Path(sys.prefix), Path(sys.executable).resolve())
    return next((str(path) for path in paths if any(map(path.is_relative_to, _HIDDEN))), "")


def is_host(root: Path) -> bool:
    """Whether files below this root are the running host's own: then its services and its kernel are meant too."""
    return root.resolve() == Path("/")


def manager_runs() -> bool:
    """Whether systemd is this host's service manager, see sd_booted(3)."""
    return Path("/run/systemd/system").is_dir() and shutil.which("systemctl") is not None


def start(*, again: bool) -> None:
    """Starts the units; with `again` it starts anew those that run. Waits until they are ready.

    Raises:
        UnitError: systemd refused, or one ended at once.
    """
    reread()
    if all(Path("/", path).exists() for path in _CLOCKS_GROUP):
        for command in _MAKE_GROUP:
            _run(command)
    _systemctl("restart" if again else "start", *UNITS)


def are_known() -> bool:
    """Whether systemd has the units, or still runs or remembers one whose file is gone."""
    loaded = _systemctl("show", "-p", "LoadState", "--value", *UNITS).stdout.split()
    states = _systemctl("show", "-p", "ActiveState", "--value", *UNITS).stdout.split()
    return set(loaded) != {"not-found"} or set(states) != {"inactive"}


def end() -> None:
    """Stops the units, if they run.

    Raises:
        UnitError: one runs all the same.
    """
    # A unit that is not there cannot be stopped either, and need not be.
    refused = _systemctl("stop", *UNITS, may_fail=True).stderr.strip()
    states = _systemctl("show", "-p", "ActiveState", "--value", *UNITS).stdout.split()
    if not set(states) <= {"inactive", "failed"}:
        raise UnitError(f"{' and '.join(UNITS)} could not be stopped, so nothing was taken away: {refused}")


def forget() -> None:
    """Takes away what the agent remembers over restarts."""
    _systemctl("clean", "--what=runtime", "foliot-agent.service", may_fail=True)


def reread() -> None:
    """Makes systemd see the units' files as they are, or that they are gone, and forget how they fared."""
    _systemctl("daemon-reload")
    _systemctl("reset-failed", *UNITS, may_fail=True)


def last_words() -> str:
    """The units' last log lines, for a person who asks why they do not run."""
    done = subprocess.run(
        ["journalctl", "-o", "cat", "-n", "5", "--no-pager", *(f"-u{unit}" for unit in UNITS)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout.strip()


def _systemctl(*arguments: str, may_fail: bool = False) -> subprocess.CompletedProcess[str]:
    return _run(("systemctl", *arguments), may_fail=may_fail)


def _run(command: Sequence[str], *, may_fail: bool = False) -> subprocess.CompletedProcess[str]:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_START_S)
    except subprocess.TimeoutExpired as error:
        raise UnitError(f"{' '.join(command)} has not come back within {_START_S:.0f} s") from error
    except FileNotFoundError as error:
        raise UnitError(f"{command[0]} is not on this host") from error
    if done.returncode and not may_fail:
        raise UnitError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done
