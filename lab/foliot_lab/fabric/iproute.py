"""The paths of the programs of iproute2. Debian keeps tc(8) outside of a user's PATH."""

from __future__ import annotations

import os
import shutil

_PATH = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))
IP = shutil.which("ip", path=_PATH) or ""
"""ip(8); empty if there is none."""
TC = shutil.which("tc", path=_PATH) or ""
"""tc(8); empty if there is none."""
