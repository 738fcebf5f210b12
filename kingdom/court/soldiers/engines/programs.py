"""Find the program of an engine that npm installs: the native binary, not the script around it.

A script that is killed leaves the binary at work, and installed without scripts it is a stub that only complains.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from glob import escape, glob

from kingdom.court.soldiers.engines.base import NeedsSetUp

PROXIES = ("HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "https_proxy", "http_proxy", "no_proxy", "NODE_EXTRA_CA_CERTS")
"""Variables that programs may need to reach the network."""


def find(name: str, command: str, natives: Sequence[str]) -> str:
    """Return the path of a program. `natives` are patterns beside the npm package that a script belongs to.

    NeedsSetUp when it is not there.
    """
    path = shutil.which(command)
    if path is None:
        step = f"install it, or name its path in config/system.yaml: `runtime: {{{name}: {{command: /path}}}}`"
        raise NeedsSetUp(why=f"the program {command} of the engine {name} is not there; {step}")
    beside = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(path))))
    for pattern in natives:
        found = sorted(glob(os.path.join(escape(beside), pattern)))
        if (native := next((path for path in found if os.access(path, os.X_OK)), None)) is not None:
            return native
    return path
