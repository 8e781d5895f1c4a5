"""Default paths of files that several of Foliot's processes share."""

CLOCK_PAGE = "/run/foliot-probe/clock"
"""The page of the node's time: systemd makes the folder for the probe, and any process may read it."""

RANK_SOCKET = "/run/foliot-agent/ranks"
"""The socket on which the agent hears processes of training jobs. systemd makes the folder for the agent."""
