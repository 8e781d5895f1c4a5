"""Measurements from probes: sessions, silence, delays and windows of stamps."""
