"""A gateway whose port is taken says so, and listens as soon as the port is free."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kingdom.hall import ports
from kingdom.hall.gateway.frames import PortTaken
from kingdom.hall.gateway.job import GatewayJob
from tests.fixtures import Clock, services
from tests.ports import free_port


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_taken_port_is_told_until_it_is_free(home: Path) -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        given = services(home, "gateway", Clock(), hall={"port": port})
        given.places.own("gateway").mkdir(exist_ok=True)
        (given.places.own("gateway") / "address").write_text("http://127.0.0.1:1\n")  # left by a kill
        job = GatewayJob(given, None)
        figures = given.places.gateway_figures("gateway")
        with pytest.raises(PortTaken, match=f"cannot listen on 127.0.0.1 port {port}: .*; free it, or change `port`"):
            job.turn(None)
        assert f"port {port}" in json.loads(figures.read_text())["why"]
        assert not (given.places.own("gateway") / "address").exists()
    try:
        job.turn(None)
        said = json.loads(figures.read_text())
        assert (said["address"], "why" in said) == (f"http://127.0.0.1:{port}", False)
    finally:
        job.close()


@pytest.fixture(autouse=True)
def first_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other test's gateways begin to look at the same port."""
    monkeypatch.setattr(ports, "FIRST", free_port())


@contextmanager
def at_work(home: Path) -> Iterator[int]:
    """The gateway of a home whose hall.yaml names no port; return the one on which it listens."""
    job = GatewayJob(given := services(home, "gateway", Clock()), None)
    try:
        job.turn(None)
        address = json.loads(given.places.gateway_figures("gateway").read_text())["address"]
        yield int(address.rpartition(":")[2])
    finally:
        job.close()


def test_homes_find_ports_of_their_own_and_keep_them(home: Path, tmp_path: Path) -> None:
    with at_work(home) as first, at_work(tmp_path) as other:
        assert first < other
    with at_work(tmp_path) as again:
        assert again == other, "though the first is free by now"
        with at_work(home) as again:
            assert again == first


def test_a_home_whose_port_was_taken_meanwhile_finds_another_and_keeps_that(home: Path) -> None:
    with at_work(home) as port:
        pass
    with socket.create_server(("127.0.0.1", port)), at_work(home) as found:
        assert found != port
    with at_work(home) as again:
        assert again == found


def test_a_damaged_note_of_the_port_does_no_harm(home: Path) -> None:
    with at_work(home) as port:
        services(home, "gateway", Clock()).places.gateway_port("gateway").write_text("seven\n")
    with at_work(home) as again:
        assert again == port
