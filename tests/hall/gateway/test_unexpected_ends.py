"""A web socket that the gateway ends for no known reason is logged, counted, and told by the doctor."""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import socketio

from tests.fixtures import founded
from tests.hall.gateway.halls import CHECKOUT, SECONDS, Hall
from tests.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::ResourceWarning")]
DEFECT = """
import gc, signal

async def fail(pipe):
    raise OSError

def end_connections(*_):
    from kingdom.hall.gateway.engine import Pipe
    Pipe.poll = fail
    for thing in gc.get_objects():
        if type(thing).__name__ == "WebSocket" and hasattr(thing, "transport"):
            thing.loop.call_soon_threadsafe(thing.transport.close)

signal.signal(signal.SIGUSR2, end_connections)
"""
"""Loaded by the gateway at its start: with the signal, web sockets are closed and the next polls fail."""


@pytest.mark.parametrize("transport", ["websocket", "polling"])
async def test_an_end_for_no_known_reason_is_told_everywhere(transport: str, home: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(DEFECT)
    hall = Hall(home, env={"PYTHONPATH": str(tmp_path)})
    founded(home, system={"roles": {"gateway": True, "worker": True}})
    try:
        hall.start("gateway")
        anna = hall.person()
        async with anna.socket(anna.room(), transports=[transport]) as hers:
            os.kill(hall.pid("gateway"), signal.SIGUSR2)
            with suppress(socketio.exceptions.SocketIOError):
                await hers.call("heartbeat")  # its answer ends the poll that is under way
            await hers.wait("disconnect")
        wait_until(
            lambda: "ended 1 socket for no known reason, the last one after" in hall.log(), SECONDS, "it is logged"
        )
        figures = hall.places.gateway_figures("gateway")
        wait_until(lambda: json.loads(figures.read_text())["unexpected_ends"] == 1, SECONDS, "it is counted")
        assert "gateway ended 1 socket for no known reason" in _said(hall, "doctor")
        assert 'kingdom_hall_unexpected_ends_total{role="gateway"} 1\n' in _said(hall, "metrics")
    finally:
        hall.close()


async def test_a_client_that_leaves_or_is_gone_is_no_unexpected_end(home: Path) -> None:
    hall = Hall(home)
    try:
        hall.start("gateway")
        anna = hall.person()
        room = anna.room()
        async with anna.socket(room) as hers:
            await hers.client.disconnect()
        async with anna.socket(room) as hers:
            hers.client.eio.ws._response.connection.transport.abort()
            await hers.wait("disconnect")
        figures = hall.places.gateway_figures("gateway")
        wait_until(lambda: json.loads(figures.read_text())["sockets"] == 0, SECONDS, "both are gone")
        assert json.loads(figures.read_text())["unexpected_ends"] == 0
        assert hall.stop("gateway") == 0
        assert "no known reason" not in hall.log()
    finally:
        hall.close()


def _said(hall: Hall, *words: str) -> str:
    environment = {**os.environ, "KINGDOM_HOME": str(hall.places.home)}
    command = [sys.executable, "-m", "kingdom", *words]
    done = subprocess.run(command, env=environment, cwd=CHECKOUT, capture_output=True, text=True, timeout=60)
    return done.stdout
