"""What the end-to-end tests need beside the root's fixtures."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # for `machine`
sys.path.insert(0, str(Path(__file__).parent.parent))  # for `bench`
