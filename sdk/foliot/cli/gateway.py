"""What subcommands ask the gateway, by HTTP."""

from __future__ import annotations

import argparse  # noqa: TC003 - argparse's private type is part of the signature
import http.client
import os
import urllib.error
import urllib.request
from typing import Any

import msgspec

_GATEWAY = "http://127.0.0.1:8470"
_TIMEOUT_S = 5.0


class GatewayError(Exception):
    """There is no answer; the message says why.

    Parameters:
        reason: the gateway's word for programs; empty: it has none.
    """

    def __init__(self, sentence: str, reason: str = "") -> None:
        super().__init__(sentence)
        self.reason = reason


def add_option(parser: argparse.ArgumentParser) -> None:
    """Adds ``--gateway``."""
    parser.add_argument(
        "--gateway",
        default=os.environ.get("FOLIOT_GATEWAY", _GATEWAY),
        help="address of the gateway (default: $FOLIOT_GATEWAY, else " + _GATEWAY + ")",
    )


def base_of(gateway: str) -> str:
    """The address before the paths of requests.

    Raises:
        GatewayError: it is no address.
    """
    if not gateway.startswith(("http://", "https://")):
        raise GatewayError(f"the gateway's address begins with http:// or https://, got {gateway!r}")
    return gateway.rstrip("/")


def get(base: str, address: str, timeout_s: float = _TIMEOUT_S) -> bytes:
    """What the gateway answers.

    Raises:
        GatewayError: it refuses, or does not answer.
    """
    # No proxy: the gateway is a neighbour, and a proxy's error would be taken for its answer.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(base + address, timeout=timeout_s) as answer:
            body: bytes = answer.read()
            return body
    except urllib.error.HTTPError as error:
        with error:
            raise _refusal(base, error.code, error.read()) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        cause = getattr(error, "reason", error)
        reason = getattr(cause, "strerror", None) or cause
        raise GatewayError(
            f"the gateway is not reachable at {base} ({str(reason).lower()}); "
            "is it running? --gateway or FOLIOT_GATEWAY says where it is"
        ) from None


def not_understood(base: str, error: msgspec.MsgspecError) -> str:
    """A sentence about an answer that is none of this version's gateway."""
    return f"what answers at {base} is no gateway, or another version's: {error}"


def _refusal(base: str, status: int, body: bytes) -> GatewayError:
    try:
        problem = msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.MsgspecError:
        problem = {}
    detail = str(problem.get("detail") or f"{base} answered with HTTP status {status}")
    return GatewayError(detail[0].lower() + detail[1:].rstrip("."), str(problem.get("reason") or ""))
