"""torchft's lighthouse, which knows who takes part. Its own command, as a module."""

from __future__ import annotations

import sys

from torchft._torchft import lighthouse_main

if __name__ == "__main__":
    sys.argv[0] = "torchft_lighthouse"
    lighthouse_main()
