"""What a process that systemd has started tells it: that it is ready, that it is well, that it ends (sd_notify)."""

from __future__ import annotations

import os
import socket
from contextlib import suppress

READY, WELL, ENDS = "READY=1", "WATCHDOG=1", "STOPPING=1"


def tell(*states: str) -> None:
    """Send these states to the socket that systemd has named; do nothing without one."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    # A socket of the abstract kind is written with @ for its first byte, which is 0.
    name = "\0" + address[1:] if address.startswith("@") else address
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as line:
        line.sendto("\n".join(states).encode(), name)
