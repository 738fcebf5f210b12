"""Who asks where proxies are between: what they say counts only as far as they are trusted."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from starlette.datastructures import Headers
from starlette.types import Scope

Address = IPv4Address | IPv6Address


class Proxies:
    """Replaces the address and the scheme of a request that came through trusted proxies by what they say of it."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._has_warned = False
        self._trusted: tuple[IPv4Network | IPv6Network, ...] = ()

    def configure(self, trusted: Iterable[str]) -> None:
        """Take over the addresses and networks of the proxies. ValueError if one is neither."""
        self._trusted = tuple(ip_network(text, strict=False) for text in trusted)

    def seen_behind(self, scope: Scope, headers: Headers) -> Scope:
        """Return a request as the first proxy that is trusted has seen it."""
        peer = scope["client"][0] if scope.get("client") else ""
        hops = [hop for line in headers.getlist("x-forwarded-for") for hop in line.split(",")]
        if not self._trusts(_address(peer)):
            if hops and not self._has_warned:
                self._has_warned = True
                self._warn(
                    f"{peer} sends X-Forwarded-For and is not among trusted_proxies in hall.yaml: if it is a proxy,"
                    " everybody behind it shares its limits"
                )
            return scope
        kind = "ws" if scope["type"] == "websocket" else "http"
        is_secret = headers.get("x-forwarded-proto", "").rpartition(",")[2].strip().lower() == "https"
        return {**scope, "client": (self._client(peer, hops), 0), "scheme": f"{kind}s" if is_secret else kind}

    def _client(self, peer: str, hops: Iterable[str]) -> str:
        """Return the last address, from the right, that a trusted proxy names and that is none itself."""
        client = _address(peer)
        for hop in reversed(list(hops)):
            named = _address(hop.strip()) if self._trusts(client) else None
            if named is None:
                break
            client = named
        return str(client)

    def _trusts(self, address: Address | None) -> bool:
        return address is not None and any(address in network for network in self._trusted)


def _address(text: str) -> Address | None:
    """Return an address that may have brackets and a port; None if it is none."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        found = ip_address(text)
    except ValueError:
        return None
    return (isinstance(found, IPv6Address) and found.ipv4_mapped) or found
