"""Server reflection, by which clients learn the interface from the gateway itself.

It is ``grpc.reflection.v1``, and ``v1alpha`` for older clients. grpcio-reflection has v1alpha alone. The two have the
same messages under two names.
"""

from __future__ import annotations

from typing import Any

import grpc
from google.protobuf import descriptor_pb2, text_format
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.reflection import aio

from foliot_gateway.rpc import descriptors

NAMES = ("grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection")


def handlers(*others: Any) -> tuple[Any, ...]:
    """The service under both names. It tells of the interface, of itself and of the services in other files."""
    names = (*descriptors.services(), *(each.full_name for file in others for each in file.services_by_name.values()))
    for file in (*others, reflection_pb2.DESCRIPTOR):
        descriptors.POOL.AddSerializedFile(file.serialized_pb)
    descriptors.POOL.Add(_as_v1(reflection_pb2.DESCRIPTOR))
    servicer = aio.ReflectionServicer((*names, *NAMES), pool=descriptors.POOL)
    method = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        reflection_pb2.ServerReflectionRequest.FromString,
        reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    return tuple(grpc.method_handlers_generic_handler(name, {"ServerReflectionInfo": method}) for name in NAMES)


def _as_v1(file: Any) -> Any:
    """The file of v1alpha under the names of v1, in which nothing else differs."""
    file = descriptor_pb2.FileDescriptorProto.FromString(file.serialized_pb)
    text = text_format.MessageToString(file).replace("v1alpha", "v1")
    return text_format.Parse(text, descriptor_pb2.FileDescriptorProto())
