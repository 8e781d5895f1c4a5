"""Starts sync: ``python -m foliot_sync``."""

from foliot.runtime.service import run
from foliot_sync.service import main

run("sync", main)
