"""Ports for servers that are given their port before they listen."""

import secrets
import socket
from pathlib import Path

FIRST, ROOM = 12_000, 8_000
GIVEN_BY_THE_SYSTEM = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_port() -> int:
    """Return a port that nothing uses, and that the system gives to no connection meanwhile."""
    end = max(FIRST + ROOM, int(GIVEN_BY_THE_SYSTEM.read_text().split()[0]))
    while True:
        port = FIRST + secrets.randbelow(end - FIRST)
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return port
