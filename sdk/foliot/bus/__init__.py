"""The bus: NATS for observations, JetStream for what may not be lost, key-value buckets for the present state."""
