"""Where a host has what several of Foliot's processes share, unless the settings say otherwise."""

CLOCK_PAGE = "/run/foliot-probe/clock"
"""The page of the node's time: systemd makes the folder for the probe, and any process may read it."""
