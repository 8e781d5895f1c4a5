"""``python -m foliot_gateway``."""

from foliot import service
from foliot_gateway.service import main

service.run(main)
