"""The checks of `kingdom doctor` for the hall."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from importlib.util import find_spec
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, build_opener

from kingdom.base import loopback
from kingdom.base.errors import KingdomError
from kingdom.base.home import config, dotenv
from kingdom.base.home.places import Places
from kingdom.base.program import home
from kingdom.base.wing import DoctorFinding
from kingdom.base.words import DAY, count, one_line
from kingdom.hall import figures
from kingdom.hall.database.accounts import has_owner
from kingdom.hall.database.opening import is_there, open_database

HEALTH_SECONDS = 5.0
PACKAGES_OF_THE_HALL: Mapping[str, Callable[[config.Config], bool]] = {
    "confluent_kafka": lambda hall: hall["transport"] == "kafka",
    "psycopg": lambda hall: not hall["database"].startswith("sqlite:"),
}


def findings(places: Places) -> Iterator[DoctorFinding]:
    on = [role for role in ("gateway", "worker") if home.system(places)["roles"][role]]
    if not on:
        return
    hall, _ = config.for_looking(places, "hall")
    if len(on) == 1:
        other = "worker" if on == ["gateway"] else "gateway"
        yield DoctorFinding(
            "warn", "hall", f"the {on[0]} is switched on and the {other} is not", home.how_to_switch_on(places, other)
        )
    for package, is_needed in PACKAGES_OF_THE_HALL.items():
        if is_needed(hall) and find_spec(package) is None:
            yield DoctorFinding("bad", "hall", f"hall.yaml needs the package {package}, which is not installed")
    if hall["registration"] == "open" and hall["host"] not in loopback.HOSTS:
        step = f"write registration: closed into {places.config / 'hall.yaml'}"
        yield DoctorFinding("warn", "hall", f"everybody who reaches {hall['host']} can register", step)
    yield from _owner(places, hall)
    for said in figures.workers(places):
        yield from _worker(said, int(hall["limits"]["worker_lag"]))
    for said in figures.gateways(places):
        if said.get("differ"):
            yield DoctorFinding("bad", "hall", one_line(said["differ"], 500))
        if said.get("address"):
            yield _health(said["role"], str(said["address"]))
        else:
            yield DoctorFinding("bad", "hall", f"{said['role']} {one_line(said.get('why'), 200)}")
        yield from _unexpected_ends(said)


def _unexpected_ends(said: Mapping[str, Any]) -> Iterator[DoctorFinding]:
    """Yield that a gateway ended sockets for no known reason within the last day."""
    ends, last = said.get("unexpected_ends"), said.get("unexpected_end_at")
    if isinstance(ends, int) and isinstance(last, int) and ends and time.time() - last < DAY:
        step = f"`grep 'no known reason' logs/{said['role']}.log` says when and after how many seconds"
        yield DoctorFinding("bad", "hall", f"{said['role']} ended {count(ends, 'socket')} for no known reason", step)


def _owner(places: Places, hall: config.Config) -> Iterator[DoctorFinding]:
    """Yield that nobody owns the hall, if its database can be asked; what is wrong with that its roles tell."""
    with suppress(KingdomError):
        secrets = dotenv.secrets(places)
        if not is_there(hall, secrets, places):
            return
        database = open_database(hall, secrets, places)
        try:
            if not database.read(has_owner):
                step = f"`{home.command()} hall invite --owner` prints a link that makes you the owner"
                yield DoctorFinding("warn", "hall", "nobody owns it", step)
        finally:
            database.close()


def _worker(said: Mapping[str, Any], most: int) -> Iterator[DoctorFinding]:
    """Yield what a worker says that somebody should know."""
    role, lag = one_line(said["role"]), said.get("lag")
    if said.get("state") == "waiting":
        step = "messages stay in their topic until it is back"
        yield DoctorFinding("bad", "hall", f"{role} waits: {one_line(said.get('why'), 200)}", step)
    elif isinstance(lag, int) and lag > most:
        step = "further messages are answered FAILED busy until it has caught up"
        yield DoctorFinding("bad", "hall", f"{count(lag, 'message')} wait for {role}", step)
    else:
        yield DoctorFinding("ok", "hall", f"{role} is {one_line(said.get('state'))}, {lag} messages wait for it")
    if said.get("gaps"):
        step = f"`grep lost logs/{role}.log` says which"
        yield DoctorFinding("bad", "hall", f"messages were removed from a topic before {role} had read them", step)
    if said.get("dead"):
        step = "queue/topics/chat.messages.dead.v1 says why, or that topic of Kafka"
        yield DoctorFinding("warn", "hall", f"{role} could not store {count(said['dead'], 'message')}", step)


def _health(gateway: str, address: str) -> DoctorFinding:
    """Return what a gateway says of itself."""
    try:
        with build_opener(ProxyHandler({})).open(f"{address}/health", timeout=HEALTH_SECONDS):
            return DoctorFinding("ok", "hall", f"{gateway} serves {address}")
    except HTTPError as refused:
        with refused:
            failed = (
                ", ".join(json.loads(refused.read()).get("error", {})) if refused.code == 503 else str(refused.code)
            )
        return DoctorFinding("bad", "hall", f"{gateway} at {address} says that something is away: {failed}")
    except (OSError, ValueError) as error:
        step = f"`{home.command()} restart {gateway}` starts it again"
        return DoctorFinding("bad", "hall", f"{gateway} does not answer at {address}: {one_line(error, 200)}", step)
