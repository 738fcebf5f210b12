"""What a test needs of this machine: it is skipped in capitals where that is missing."""

from __future__ import annotations

import pytest

from kingdom.court.soldier import sandbox

WHOLE_SANDBOX = sandbox.missing() is None
needs_sandbox = pytest.mark.skipif(not WHOLE_SANDBOX, reason=f"NO WHOLE SANDBOX HERE: {sandbox.missing()}")
