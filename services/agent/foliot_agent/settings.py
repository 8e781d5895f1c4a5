"""``[agent]``: how far the agent may go."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from foliot.places import RANK_SOCKET
from foliot.settings import SettingsError

Armed = Literal["off", "bus-away", "always"]
Policy = Literal["off", "advise", "act"]

_LEAST_KEY = 16
"""Characters; RFC 2104 (HMAC) advises against keys shorter than the security that one hopes for."""


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The agent's own section; who the node is stands in ``[node]``."""

    actuator: str = "overlay"
    """The actuator of service addresses: ``overlay``, or an extension's."""
    armed: Armed = "off"
    """Whether the node moves its traffic by itself when it loses a carrier: never, while the bus is away, or always."""
    policy: Policy = "act"
    """``off`` refuses every command, ``advise`` answers what it would do, ``act`` does it. Arms nothing unless
    ``act``."""
    memory: str = "/run/foliot"
    """Folder in which the agent remembers over a restart what it needs while the bus is away. The folder should not
    outlive the boot. Empty: it does not remember."""
    rank_socket: str = RANK_SOCKET
    """Path of the Unix socket on which processes of training jobs (`foliot.torch`) say how far they are. Any process of
    the host may write to it. Empty: nobody is heard."""
    kernel_log: str = "/dev/kmsg"
    """Path of the kernel's log, in which the agent sees errors of GPUs (XID): the device, or a FIFO with such lines.
    Empty, or where the agent may not read it: none are seen."""
    tcp_usec_ts: bool = False
    """Whether TCP between service addresses stamps its packets in microseconds, so that probes can read their delay
    (`probe.in_band`). It changes what connections say that begin from then on. The kernel takes it from Linux 6.7 on."""
    nic_stamps: Literal["auto", "off"] = "off"
    """Whether NICs are told to stamp all packets: ``auto``, where one can and nobody else uses its stamps. They stay so
    over restarts. ``off`` puts back what the agent found. Only the probe (`probe.nic_stamps`) makes use of them."""
    key: str = ""
    """Shared by the fleet's agents; authenticates what they tell each other without the bus. Needed to be armed."""
    key_file: str = ""
    """Path of the file that holds the key, in place of `key`: `fleet.key`, which `foliot keys node` makes."""

    def __post_init__(self) -> None:
        """Refuses to be armed without a key."""
        if self.armed != "off" and not self.key_file and len(self.key) < _LEAST_KEY:
            raise ValueError(
                f"field `key` must have at least {_LEAST_KEY} characters, the same on every node, "
                f"because agent.armed is {self.armed!r} and notices between agents are authenticated with it",
            )

    def secret(self) -> str:
        """The key, out of its file if it is in one.

        Raises:
            SettingsError: the file cannot be read, or holds no key.
        """
        if not self.key_file:
            return self.key
        try:
            key = Path(self.key_file).read_text().strip()
        except (OSError, ValueError) as error:
            raise SettingsError(f"agent.key_file: {self.key_file}: {getattr(error, 'strerror', error)}") from error
        if len(key) < _LEAST_KEY:
            raise SettingsError(f"agent.key_file: {self.key_file}: a key has at least {_LEAST_KEY} characters")
        return key
