"""Two homes share a database: if their gateways sign with different secrets, both say so and how to mend it."""

from __future__ import annotations

import os
import subprocess
import sys

import requests

from tests.distributed.postgres import Postgres
from tests.hall.gateway.halls import CHECKOUT, OPEN, SECONDS, Hall, running
from tests.waiting import wait_until

ROLES = {"roles": {"gateway": True, "worker": True}}


def status(hall: Hall, token: str) -> int:
    headers = {"Authorization": f"Bearer {token}"}
    return requests.get(f"{hall.url}/rooms", headers=headers, timeout=SECONDS).status_code


def details(hall: Hall) -> dict[str, object]:
    answer = requests.get(f"{hall.url}/health", timeout=SECONDS)
    assert answer.status_code == 200, "a proxy shall not take both out of service"
    found: dict[str, object] = answer.json()["details"]
    return found


def doctor(hall: Hall) -> str:
    environment = {**os.environ, "KINGDOM_HOME": str(hall.places.home)}
    command = [sys.executable, "-m", "kingdom", "doctor"]
    return subprocess.run(command, cwd=CHECKOUT, env=environment, capture_output=True, text=True, check=False).stdout


def test_two_homes_with_different_secrets_say_so_until_they_have_one(postgres: Postgres) -> None:
    postgres.empty()
    config = {**OPEN, "database": postgres.url}
    with (
        running("gateway", config=config, system=ROLES) as one,
        running("gateway", config=config, system=ROLES) as other,
    ):
        anna = one.person()
        assert (status(one, anna.token), status(other, anna.token)) == (200, 401)
        for hall, whose in ((other, one), (one, other)):
            said = f"tokens are signed with another secret by the gateway of {os.uname().nodename}:{whose.places.home}"
            wait_until(lambda said=said, hall=hall: said in hall.log(), 3 * SECONDS, "the log says so")
            assert details(hall)["secret"] == {"status": "down"}
        step = "write the same KINGDOM_JWT_SECRET into .env of every home, and restart the gateways"
        wait_until(lambda: step in " ".join(doctor(other).split()), SECONDS, "doctor says so")
        secret = (one.places.own("gateway") / "secret").read_text()
        other.stop("gateway")
        other.places.env_file.write_text(f"KINGDOM_JWT_SECRET={secret}\n")
        other.places.env_file.chmod(0o600)
        other.url = ""
        other.start("gateway")
        assert (status(one, anna.token), status(other, anna.token)) == (200, 200)
        assert "secret" not in details(other)
        wait_until(
            lambda: "sign tokens with one secret" in one.log(), 3 * SECONDS, "the first one says that all is well"
        )
        assert "secret" not in details(one)
        for hall in (one, other):
            assert secret not in hall.log()
