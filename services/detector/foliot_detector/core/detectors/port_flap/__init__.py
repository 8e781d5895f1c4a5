"""Ports: a carrier lost or back, and ports that flap."""
