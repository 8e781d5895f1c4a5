"""Starts the probe: ``python -m foliot_probe``."""

from foliot.runtime.service import run
from foliot_probe.service import main

run("probe", main)
