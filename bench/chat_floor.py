"""A durable event behind a socket: `python -m bench.chat_floor FOLDER` prints its port and serves one client.

A thread of its own writes and answers, so that a slow disk holds up nobody else.
"""

from __future__ import annotations

import socket
import sys
from itertools import count
from queue import SimpleQueue
from threading import Thread

from bench import floors


def write_event(folder: str, name: str) -> None:
    """Write one durable event: a file under its name."""
    floors.write_file(folder, name, power=True)
    floors.sync_folder(folder)


def serve(folder: str) -> None:
    server = socket.create_server(("127.0.0.1", 0))
    print(server.getsockname()[1], flush=True)
    client, _ = server.accept()
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    given: SimpleQueue[bytes] = SimpleQueue()

    def write() -> None:
        for number in count():
            event = given.get()
            write_event(folder, f"served-{number}")
            client.sendall(event)

    Thread(target=write, daemon=True).start()
    while event := client.recv(4096):
        given.put(event)


if __name__ == "__main__":
    serve(sys.argv[1])
