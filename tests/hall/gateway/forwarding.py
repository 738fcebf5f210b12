"""A proxy as it stands before a gateway: it says who asked, and whether that was by TLS."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from urllib.parse import urlsplit

LARGEST = 1 << 16


@contextmanager
def forwarding(to: str, says: str) -> Iterator[str]:
    """Return the address of a proxy to a gateway that adds these headers, a line each, to every request."""
    target = (urlsplit(to).hostname or "", urlsplit(to).port or 0)
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        threading.Thread(target=_serve, args=(server, target, says), daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def _serve(server: socket.socket, target: tuple[str, int], says: str) -> None:
    with suppress(OSError):
        while True:
            client, _ = server.accept()
            threading.Thread(target=_forward, args=(client, target, says), daemon=True).start()


def _forward(client: socket.socket, target: tuple[str, int], says: str) -> None:
    """Pass one request on, and what comes after it in both directions."""
    with closing(client), suppress(OSError), closing(socket.create_connection(target)) as gateway:
        data = b""
        while b"\r\n\r\n" not in data:
            data += client.recv(LARGEST)
        request, _, rest = data.partition(b"\r\n")
        ends = b"" if b"upgrade: websocket" in data.lower() else b"connection: close\r\n"
        added = "".join(f"{line}\r\n" for line in says.splitlines()).encode()
        gateway.sendall(request + b"\r\n" + rest.replace(b"\r\n\r\n", b"\r\n" + added + ends + b"\r\n", 1))
        threading.Thread(target=_copy, args=(client, gateway), daemon=True).start()
        _copy(gateway, client)


def _copy(source: socket.socket, to: socket.socket) -> None:
    with suppress(OSError):
        while part := source.recv(LARGEST):
            to.sendall(part)
        to.shutdown(socket.SHUT_WR)
