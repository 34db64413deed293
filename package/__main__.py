"""``python -m dualdnn`` is the command ``dualdnn``."""

import sys

from dualdnn.conformance.command_line import main

sys.exit(main())
