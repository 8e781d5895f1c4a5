"""Which way traffic goes: one destination, and what carries it."""

from __future__ import annotations

from typing import Annotated

import msgspec

from foliot_schemas.bounds import MOST_RAILS, Entropy, Name, Text

Rails = Annotated[tuple[Name, ...], msgspec.Meta(max_length=MOST_RAILS)]
SERVICE_ADDRESSES = "service-addresses"
"""The class of traffic that jobs send to the service addresses of a peer."""


class Placement(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """Which way the traffic to one service address goes, or what else a key names."""

    peer: Name
    """Node that has the service address."""
    rail: Name
    """Rail that the service address belongs to."""
    via: Name
    """Rail that carries it."""
    entropy: Entropy
    """Index of the entropy that carries it."""
    key: Text = ""
    """Of traffic of another class, what is moved, in the words of the actuator that moves it; service addresses have none."""
