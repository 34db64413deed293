"""``python -m dualdnn.conformance``: the command ``dualdnn``."""

import sys

from .command_line import main

sys.exit(main())
