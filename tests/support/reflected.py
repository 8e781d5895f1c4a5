"""A gRPC client that knows nothing but an address: what there is to ask and how, it learns by reflection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import grpc
from google.protobuf import descriptor_pool, message_factory
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

if TYPE_CHECKING:
    from collections.abc import Iterator

_VALUES = {"Value", "AnyValue"}


class Reflected:
    """The client. It blocks: beside a server in the same loop, call it in a thread.

    Parameters:
        port: of the server on this machine.
        patience_s: after which a question without an answer is an error.
    """

    def __init__(self, port: int, patience_s: float) -> None:
        self._channel = grpc.insecure_channel(f"127.0.0.1:{port}", options=[("grpc.enable_http_proxy", 0)])
        grpc.channel_ready_future(self._channel).result(patience_s)
        self._database = ProtoReflectionDescriptorDatabase(self._channel)
        self._pool = descriptor_pool.DescriptorPool(self._database)
        self._patience_s = patience_s

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def services(self) -> list[str]:
        """Their names."""
        return list(self._database.get_services())

    def methods(self, service: str) -> dict[str, Any]:
        """The methods of a service by name."""
        return dict(self._pool.FindServiceByName(service).methods_by_name)

    def stream(self, method: str, **asked: Any) -> Any:
        """What ``package.Service/Method`` goes on telling: an iterator of messages that can be cancelled."""
        return self._call(method, self._channel.unary_stream)(self._request(method, asked), timeout=self._patience_s)

    def messages(self, method: str, **asked: Any) -> list[Any]:
        """All messages of an answer, one or several."""
        described = self._described(method)
        if described.server_streaming:
            return list(self.stream(method, **asked))
        return [self._call(method, self._channel.unary_unary)(self._request(method, asked), timeout=self._patience_s)]

    def ask(self, method: str, **asked: Any) -> Any:
        """An answer as HTTP has it: what the one field holds, of a list from all slices."""
        described = self._described(method).output_type
        (field,) = described.fields
        whole = message_factory.GetMessageClass(described)()
        for part in self.messages(method, **asked):
            whole.MergeFrom(part)
        return plain(whole)[field.name]

    def raw(self, method: str, data: bytes) -> bytes:
        """The bytes that answer some bytes."""
        kind = self._channel.unary_stream if self._described(method).server_streaming else self._channel.unary_unary
        answer: Any = kind(f"/{method}")(data, timeout=self._patience_s)
        return answer if isinstance(answer, bytes) else b"".join(answer)

    def _described(self, method: str) -> Any:
        service, _, name = method.partition("/")
        return self._pool.FindServiceByName(service).FindMethodByName(name)

    def _request(self, method: str, asked: dict[str, Any]) -> Any:
        return message_factory.GetMessageClass(self._described(method).input_type)(**asked)

    def _call(self, method: str, kind: Any) -> Any:
        answer = message_factory.GetMessageClass(self._described(method).output_type)
        return kind(
            f"/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=answer.FromString,
        )


def plain(message: Any) -> Any:
    """A message as JSON has its struct: every field there is, words for enums, None for what is absent."""
    if message.DESCRIPTOR.name in _VALUES:
        return _value(message)
    if message.DESCRIPTOR.name == "Names":  # a map's values cannot repeat
        return [*message.names]
    return {field.name: _field(message, field) for field in message.DESCRIPTOR.fields}


def _field(message: Any, field: Any) -> Any:
    value = getattr(message, field.name)
    if _is_map(field):
        of = field.message_type.fields_by_name["value"]
        return {name: _one(value[name], of) for name in value}
    if field.is_repeated:
        return [_one(each, field) for each in value]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _one(value, field)


def _one(value: Any, field: Any) -> Any:
    if field.enum_type is not None:
        names = {number: of.name for number, of in field.enum_type.values_by_number.items()}
        prefix = names[0].removesuffix("UNSPECIFIED") if names[0].endswith("_UNSPECIFIED") else ""
        return names[value].removeprefix(prefix).lower().replace("_", "-")
    return plain(value) if field.message_type is not None else value


def _value(message: Any) -> Any:
    kind = message.WhichOneof("kind")
    if kind is None:
        return None
    value = getattr(message, kind)
    if kind == "list":
        return [_value(each) for each in value.values]
    if kind == "map":
        return {name: _value(value.values[name]) for name in value.values}
    return value


def _is_map(field: Any) -> bool:
    return bool(field.is_repeated and field.message_type and field.message_type.GetOptions().map_entry)


def first(stream: Iterator[Any], change: str = "") -> Any:
    """The next message of a stream; the next that tells a change of a name, if one is given.

    Raises:
        AssertionError: the stream ended.
    """
    for message in stream:
        if not change or message.WhichOneof("change") == change:
            return message
    raise AssertionError(f"the stream ended before any {change or 'message'}")
