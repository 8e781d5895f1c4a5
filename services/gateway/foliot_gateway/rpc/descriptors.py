"""The interface as `make proto` has built it from ``schemas/proto``.

The gateway finds messages and services by name while it runs. No code is generated. A struct and its message are both
written by hand; they meet in `foliot_gateway.rpc.conversion`.
"""

from __future__ import annotations

import functools
from importlib import resources
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE: Final = "foliot.v1"


_IMAGE: Final = resources.files(__package__).joinpath(f"{PACKAGE}.binpb")
FILES: Final = tuple(descriptor_pb2.FileDescriptorSet.FromString(_IMAGE.read_bytes()).file)
"""The files of the interface, with the comments of their source."""
POOL: Final = descriptor_pool.DescriptorPool()
"""The pool that reflection shows; the files of health and of reflection join it."""
for _file in FILES:
    POOL.Add(_file)


@functools.cache
def message(name: str) -> Any:
    """The class of a message of the interface.

    Raises:
        KeyError: there is none of this name.
    """
    return message_factory.GetMessageClass(POOL.FindMessageTypeByName(f"{PACKAGE}.{name}"))


def services() -> dict[str, Any]:
    """The services of the interface by their full names."""
    names = (f"{PACKAGE}.{service.name}" for file in FILES for service in file.service)
    return {name: POOL.FindServiceByName(name) for name in names}
