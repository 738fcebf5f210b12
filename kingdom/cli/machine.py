"""What this machine holds of a soldier's sandbox, as found out by trying it in a process of its own."""

from __future__ import annotations

import subprocess
import sys


def missing_of_sandbox() -> tuple[str, str]:
    """Return what is missing for a whole sandbox, and why a process could outlive its soldier; "" where nothing is."""
    asked = subprocess.run([sys.executable, "-P", "-m", "kingdom.soldier", "--sandbox"], capture_output=True, text=True)
    missing, _, hides = asked.stdout.partition("\n")
    return missing.strip() or (asked.stderr.strip() if asked.returncode else ""), hides.strip()
