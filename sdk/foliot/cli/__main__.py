"""``python -m foliot.cli`` is the command ``foliot``."""

import sys

from foliot.cli import main

sys.exit(main())
