"""The names of this machine, and where a secret may be sent."""

from __future__ import annotations

from urllib.parse import urlsplit

HOSTS = ("127.0.0.1", "localhost", "::1")


def keeps_secrets(address: str) -> bool:
    """Return whether an address keeps secrets private: https, or http on this machine."""
    try:
        scheme, host = urlsplit(address).scheme, urlsplit(address).hostname
    except ValueError:
        return False
    return bool(host) and (scheme == "https" or (scheme == "http" and host in HOSTS))
