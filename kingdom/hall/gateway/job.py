"""What the gateway does: it serves on an event loop of its own, which every turn lets run for a while."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from kingdom.base.disk.codec import to_json
from kingdom.base.errors import BadConfig
from kingdom.base.runtime.role import Services, Turn
from kingdom.hall import ports
from kingdom.hall.gateway.app import Application
from kingdom.hall.gateway.frames import Listener, PortTaken

LONGEST_TURN = 1.0
DRAIN_SECONDS = 3.0
END_SECONDS = 2.0
FIGURES_SECONDS = 10.0
SWITCH_SECONDS = 0.0005
"""How long the event loop computes before other threads get a turn: somebody waits for what they bring."""


class GatewayJob:
    def __init__(self, services: Services, instance: str | None) -> None:
        """`instance` is one of those that hall.yaml names, with a port of its own."""
        sys.setswitchinterval(SWITCH_SECONDS)
        self._services = services
        self._port = _port(services, instance)
        self._loop = asyncio.new_event_loop()
        self._wake = asyncio.Event()
        self._loop.add_reader(services.alarm.fileno(), self._wake.set)
        self._application = Application(services)
        self._listener: Listener | None = None
        self._figures: dict[str, int | str] = {}
        self._figures_at = 0.0
        #: Where it listens, or why it does not.
        self._place: dict[str, str] = {}
        with suppress(OSError):
            os.unlink(self._address)  # of a process that was killed

    def folders(self) -> Mapping[Path, tuple[str, ...]]:
        """Return none: what arrives comes through the event loop."""
        return {}

    def turn(self, arrivals: dict[Path, list[str]] | None) -> Turn:
        """Serve for a while. It ends when the reader of topics has come round: if that hangs, the role does."""
        before = self._application.figures()
        self._loop.run_until_complete(self._serve())
        return Turn(worked=self._application.figures() != before, wait=0.0, settled=True)

    def reload(self, services: Services) -> None:
        """Take over new configuration. Port, transport and database take effect at the next start."""
        self._services = services
        self._application.configure(services.config)

    def close(self) -> None:
        """Take nothing more in, answer what was taken in, and let everybody go."""
        with suppress(OSError):
            os.unlink(self._address)
        self._loop.remove_reader(self._services.alarm.fileno())
        self._loop.run_until_complete(self._end())
        self._loop.close()

    def _keep(self, port: int) -> None:
        """Note the port that was found, so that the addresses that people know stay right."""
        places, name = self._services.places, self._services.name
        kept = ports.kept_port(places, name)
        if self._port is not None or kept == port:
            return
        if kept is not None:
            self._services.log.warn(f"port {kept} is in use by another program; listens on {port} from now on")
        self._services.disk.rewrite(places.gateway_port(name), f"{port}\n".encode())

    @property
    def _address(self) -> Path:
        return self._services.places.own(self._services.name) / "address"

    async def _serve(self) -> None:
        if self._listener is None:
            await self._begin()
            return
        threshold = float(self._services.system["heartbeat"]["threshold_seconds"])
        moved = self._application.moved
        moved.clear()
        self._wake.clear()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), min(LONGEST_TURN, threshold / 8))
        # A signal wakes too: a role whose reader hangs can still be asked to end.
        await _first_of(moved, self._wake)
        self._application.check()
        self._write_figures()

    async def _begin(self) -> None:
        await self._application.learn_sessions()
        await self._application.learn_siblings()
        self._application.start()
        listener = Listener(self._application)
        host = self._services.config["host"]
        try:
            found = [self._port] if self._port is not None else ports.to_try(self._services.places, self._services.name)
            port = await listener.listen(host, *found)
        except PortTaken as error:
            self._place = {"why": str(error)}
            self._write_figures()
            raise
        self._listener = listener
        self._keep(port)
        address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        self._services.unsynced.rewrite(self._address, f"{address}\n".encode())
        self._place = {"address": address}
        self._write_figures()
        self._services.log.info(f"listens on {address}")

    async def _end(self) -> None:
        if self._listener is not None:
            self._listener.refuse_more()
        await self._application.drain(DRAIN_SECONDS)
        if self._listener is not None:
            await self._listener.close(END_SECONDS)
        await self._application.close(END_SECONDS)
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def _write_figures(self) -> None:
        now = self._services.monotonic()
        figures: dict[str, int | str] = {**self._application.figures(), **self._place}
        if differ := self._application.differ:
            figures["differ"] = differ
        is_new = self._place.items() - self._figures.items()
        if figures != self._figures and (is_new or now - self._figures_at >= FIGURES_SECONDS):
            self._services.unsynced.rewrite(
                self._services.places.gateway_figures(self._services.name), to_json(figures)
            )
            self._figures, self._figures_at = figures, now


async def _first_of(*events: asyncio.Event) -> None:
    """Wait until one of them is set."""
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


def _port(services: Services, instance: str | None) -> int | None:
    """Return the port that hall.yaml names; None where the gateway is to find one."""
    if instance is None:
        port: int | None = services.config["port"]
        return port
    ports = services.config["instances"]["gateway"]
    if instance not in ports:
        known = ", ".join(ports) or "none"
        why = f"names no gateway {instance!r}; known are {known}"
        raise BadConfig(path=services.places.config / "hall.yaml", line="", key="instances", why=why)
    return int(ports[instance])
