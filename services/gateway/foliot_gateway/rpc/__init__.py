"""gRPC: the read model as the package ``foliot.v1``, with health and reflection."""
