"""Run the command ``dualdnn`` as ``python -m dualdnn.conformance``."""

import sys

from .command_line import main

sys.exit(main())
