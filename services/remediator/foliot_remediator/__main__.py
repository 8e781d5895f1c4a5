"""Starts the remediator: ``python -m foliot_remediator``."""

from foliot.runtime.service import run
from foliot_remediator.service import main

run("remediator", main)
