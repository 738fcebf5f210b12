"""What a test needs of this machine: it is skipped in capitals where that is missing."""

from __future__ import annotations

import pytest

from kingdom.court.soldier import sandbox

needs_sandbox = pytest.mark.skipif(sandbox.missing() is not None, reason=f"NO WHOLE SANDBOX HERE: {sandbox.missing()}")
