"""Starts the detector: ``python -m foliot_detector``."""

from foliot.runtime.service import run
from foliot_detector.service import main

run("detector", main)
