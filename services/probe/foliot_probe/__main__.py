"""``python -m foliot_probe``."""

from foliot.service import run
from foliot_probe.service import main

run(main)
