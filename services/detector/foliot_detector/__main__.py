"""Starts the detector: ``python -m foliot_detector``."""

from foliot.service import run
from foliot_detector.service import main

run(main)
