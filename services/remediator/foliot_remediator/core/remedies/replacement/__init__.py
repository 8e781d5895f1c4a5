"""The remedy of lost ranks: a spare takes the place of a training job's rank, see `remedy`."""

from foliot_remediator.core.actions.remedy import register
from foliot_remediator.core.remedies.replacement.remedy import NAME, Replacement

register(NAME, Replacement)
