"""The way of traffic: one destination, and the rail and entropy that carry it."""

from __future__ import annotations

from typing import Annotated

import msgspec

from foliot_schemas.bounds import MOST_RAILS, Entropy, Name, Text

Rails = Annotated[tuple[Name, ...], msgspec.Meta(max_length=MOST_RAILS)]
SERVICE_ADDRESSES = "service-addresses"
"""The class of traffic that jobs send to the service addresses of a peer."""


class Placement(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """The way of the traffic to one service address, or to another thing that a key names."""

    peer: Name
    """Node that has the service address."""
    rail: Name
    """Rail that the service address belongs to."""
    via: Name
    """Rail that carries it."""
    entropy: Entropy
    """Index of the entropy that carries it."""
    key: Text = ""
    """The thing that is moved, for other classes of traffic, in the words of the actuator that moves it. Service
    addresses have none."""
