"""A supervisord that refuses, and one that shuts down while it is asked for something."""

from __future__ import annotations

import os
import signal
import socketserver
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xmlrpc.client import Fault
from xmlrpc.server import SimpleXMLRPCDispatcher, SimpleXMLRPCRequestHandler

import pytest

from kingdom.base.errors import LauncherError
from kingdom.court.steward.base import Timeouts
from kingdom.court.steward.supervisord import Supervisord
from tests.fixtures import founded
from tests.shell_roles import Court, found_court, row
from tests.waiting import SOON, stays

SPAWN_ERROR, FAILED = 50, 30


class Handler(SimpleXMLRPCRequestHandler):
    disable_nagle_algorithm = False


class Refusing(socketserver.UnixStreamServer, SimpleXMLRPCDispatcher):
    """Answers as a supervisord does to which each of these calls fails."""

    logRequests = False  # noqa: N815 - the name is the library's

    def __init__(self, path: Path, refused: dict[str, Fault]) -> None:
        SimpleXMLRPCDispatcher.__init__(self)
        path.parent.mkdir(parents=True, exist_ok=True)
        socketserver.UnixStreamServer.__init__(self, str(path), Handler)
        self.register_function(lambda: {"statecode": 1, "statename": "RUNNING"}, "supervisor.getState")
        self.register_instance(self)
        self._refused = refused

    def _dispatch(self, method: str, params: Any) -> Any:
        if (fault := self._refused.get(method.removeprefix("supervisor."))) is not None:
            raise fault
        return super()._dispatch(method, params)


@pytest.mark.parametrize(
    ("refused", "asks", "said"),
    [
        (Fault(SPAWN_ERROR, "SPAWN_ERROR: gen-a"), "startProcess", "could not startProcess gen-a: SPAWN_ERROR: gen-a"),
        (Fault(FAILED, "FAILED"), "getAllProcessInfo", "could not getAllProcessInfo its roles: FAILED"),
    ],
)
def test_what_a_supervisord_refuses_is_told_with_whom_it_was_for(
    home: Path, refused: Fault, asks: str, said: str
) -> None:
    places = founded(home)
    ours = Supervisord(places)
    call: Callable[[], object] = ours.statuses if asks == "getAllProcessInfo" else lambda: ours.start(row("gen-a"))
    with Refusing(places.supervisor_socket, {asks: refused}) as server:
        answering = threading.Thread(target=server.serve_forever, args=(0.02,))
        answering.start()
        try:
            with pytest.raises(LauncherError, match=said):
                call()
        finally:
            server.shutdown()
            answering.join()


@pytest.fixture
def court(home: Path, monkeypatch: pytest.MonkeyPatch) -> Court:
    return found_court(home, monkeypatch)


@pytest.fixture
def ours(court: Court) -> Iterator[Supervisord]:
    steward = Supervisord(court.places, Timeouts(stop=0.5))
    steward.start_launcher([row("king")])
    court.wait_for_beats("king")
    yield steward
    steward.down()


@pytest.mark.parametrize("asked", ["stop", "start"])
def test_who_is_asked_while_it_shuts_down_waits_for_the_end_of_that(
    court: Court, ours: Supervisord, asked: str
) -> None:
    court.behave("king", "deaf beating")
    ours.stop("king")
    ours.start(row("king"))
    court.wait_for_beats("king", life=2)
    ours._call("shutdown")
    said: list[str] = []

    def ask() -> None:
        try:
            ours.stop("king") if asked == "stop" else ours.start(row("king"))
        except LauncherError as error:
            said.append(str(error))

    asking = threading.Thread(target=ask)
    asking.start()
    stays(asking.is_alive, 0.3, "it waits, as the king has not ended")
    os.kill(court.lives("king")[-1], signal.SIGKILL)
    asking.join(SOON)
    assert not asking.is_alive()
    assert not ours.launcher_runs()
    told = "supervisord could not start king: it was shut down meanwhile; `kingdom up` starts everything"
    assert said == ([told] if asked == "start" else [])
