"""Credentials of the bus: nkeys, the JWTs that they sign, TLS, and the server's configuration.

Imported where keys are made; a service needs its credentials file alone.
"""
