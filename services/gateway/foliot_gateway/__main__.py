"""``python -m foliot_gateway``."""

from foliot.runtime import service
from foliot_gateway.service import main

service.run("gateway", main)
