"""`python -m kingdom` is `kingdom`."""

import sys

from kingdom.cli.main import main

sys.exit(main())
