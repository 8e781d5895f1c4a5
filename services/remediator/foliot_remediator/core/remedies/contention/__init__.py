"""The remedy of contention, see `remedy`."""

from foliot_remediator.core.actions.remedy import register
from foliot_remediator.core.remedies.contention.remedy import NAME, Contention

register(NAME, Contention)
