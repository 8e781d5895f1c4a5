"""Who may connect to the bus and what they may say: nkeys, the JWTs they sign, TLS, and the server's part of it.

Imported where keys are made; a service needs its credentials file alone.
"""
