#!/usr/bin/env python3
"""Write, read and edit messages of the council: scripts/lib/ignite_mime.py by a shorter name."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__))), "scripts", "lib"))
import ignite_mime

sys.exit(ignite_mime.main(sys.argv[1:]))
