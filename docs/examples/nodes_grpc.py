"""The NICs of the fleet by gRPC, with no generated code.

``pip install grpcio grpcio-reflection``, ``python nodes_grpc.py 127.0.0.1:8471``.
"""

import sys

import grpc
from google.protobuf import descriptor_pool, message_factory
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

with grpc.insecure_channel(sys.argv[1]) as channel:
    pool = descriptor_pool.DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
    method = pool.FindServiceByName("foliot.v1.FleetService").FindMethodByName("ListNodes")
    request, response = (message_factory.GetMessageClass(kind) for kind in (method.input_type, method.output_type))
    ask = channel.unary_stream("/foliot.v1.FleetService/ListNodes", request.SerializeToString, response.FromString)
    for part in ask(request()):
        for nic in (nic for node in part.nodes for nic in node.nics):
            print(nic.nic, method.output_type.file.enum_types_by_name["Condition"].values_by_number[nic.condition].name)
