"""A gateway whose port is taken says so, and listens as soon as the port is free."""

import json
import socket
from pathlib import Path

import pytest

from kingdom.hall.gateway.frames import PortTaken
from kingdom.hall.gateway.job import GatewayJob
from tests.fixtures import Clock, services


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_taken_port_is_told_until_it_is_free(home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
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
