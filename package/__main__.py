"""Run the command ``dualdnn`` for ``python -m dualdnn``."""

import sys

from dualdnn.conformance.command_line import main

sys.exit(main())
