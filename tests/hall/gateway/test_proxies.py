"""Behind a proxy everybody has their own address, and nobody else chooses one."""

from __future__ import annotations

import http.client
import uuid
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests
import socketio
import yaml
from click.testing import CliRunner
from starlette.datastructures import Headers

from kingdom.hall.cli.hall import hall as hall_command
from kingdom.hall.gateway.proxies import Proxies
from tests.hall.gateway.forwarding import forwarding
from tests.hall.gateway.halls import OPEN, PASSWORD, SECONDS, Hall, Person, running
from tests.waiting import wait_until

pytestmark = pytest.mark.anyio
PUBLIC = "https://chat.example.org"
ONE, OTHER = "198.51.100.1", "2001:db8::7"
CONFIG = {
    **OPEN,
    "public_url": PUBLIC,
    "trusted_proxies": ["127.0.0.1", "::1"],
    "limits": {"wrong_passwords": {"count": 2, "seconds": 600}},
}

CLIENTS: dict[str, tuple[str, list[str], str]] = {
    "nobody between": ("192.0.2.1", [], "192.0.2.1"),
    "a stranger names an address": ("192.0.2.1", ["198.51.100.1"], "192.0.2.1"),
    "a proxy names its client": ("127.0.0.1", ["198.51.100.1"], "198.51.100.1"),
    "the client had named another one": ("127.0.0.1", ["203.0.113.9, 198.51.100.1"], "198.51.100.1"),
    "in a header of its own": ("127.0.0.1", ["203.0.113.9", "198.51.100.1"], "198.51.100.1"),
    "two proxies": ("127.0.0.1", ["203.0.113.9, 198.51.100.1, 10.1.2.3"], "198.51.100.1"),
    "a stranger between proxies": ("127.0.0.1", ["10.9.9.9, 192.0.2.1, 10.1.2.3"], "192.0.2.1"),
    "all are proxies": ("127.0.0.1", ["10.1.1.1, 10.2.2.2"], "10.1.1.1"),
    "the proxy names nobody": ("127.0.0.1", [], "127.0.0.1"),
    "what it names is none": ("127.0.0.1", ["198.51.100.1, unknown"], "127.0.0.1"),
    "empty": ("127.0.0.1", [""], "127.0.0.1"),
    "IPv6": ("::1", ["2001:db8::7"], "2001:db8::7"),
    "IPv6 spelt otherwise": ("::1", ["2001:0DB8:0:0::0007"], "2001:db8::7"),
    "IPv6 with a port": ("::1", ["[2001:db8::7]:4711"], "2001:db8::7"),
    "IPv6 in brackets": ("::1", ["[2001:db8::7]"], "2001:db8::7"),
    "IPv4 with a port": ("127.0.0.1", ["198.51.100.1:4711"], "198.51.100.1"),
    "a proxy over IPv6 that is mapped": ("::ffff:127.0.0.1", ["::ffff:198.51.100.1"], "198.51.100.1"),
    "a network of IPv6": ("2001:db8:1::5", ["198.51.100.1"], "198.51.100.1"),
    "a Unix socket": ("", ["198.51.100.1"], ""),
}


def seen(peer: str, said: list[tuple[str, str]], warnings: list[str]) -> Any:
    proxies = Proxies(warnings.append)
    proxies.configure(["127.0.0.1", "::1", "10.0.0.0/8", "2001:db8:1::/48"])
    raw = [(name.encode(), value.encode()) for name, value in said]
    return proxies.seen_behind({"type": "http", "client": (peer, 5), "scheme": "http"}, Headers(raw=raw))


@pytest.mark.parametrize("name", CLIENTS)
def test_who_asks_is_the_last_whom_a_trusted_proxy_names(name: str) -> None:
    peer, hops, client = CLIENTS[name]
    warnings: list[str] = []
    scope = seen(peer, [("x-forwarded-for", line) for line in hops], warnings)
    assert scope["client"][0] == client
    assert bool(warnings) == (name in ("a stranger names an address", "a Unix socket"))


@pytest.mark.parametrize(
    ("peer", "proto", "scheme"),
    [
        ("127.0.0.1", "https", "https"),
        ("127.0.0.1", "http, HTTPS", "https"),
        ("127.0.0.1", "https, http", "http"),
        ("192.0.2.1", "https", "http"),
    ],
)
def test_whether_it_came_by_tls_a_trusted_proxy_says(peer: str, proto: str, scheme: str) -> None:
    assert seen(peer, [("x-forwarded-proto", proto)], [])["scheme"] == scheme


@pytest.fixture(scope="module")
def behind() -> Iterator[Hall]:
    with running("gateway", "worker", config=CONFIG) as opened:
        yield opened


def says(client: str, proto: str = "https") -> str:
    return f"X-Forwarded-For: {client}\nX-Forwarded-Proto: {proto}"


def sign_in(url: str, email: str, password: str, **headers: str) -> int:
    given = {"email": email, "password": password}
    return requests.post(f"{url}/auth/login", json=given, headers=headers, timeout=SECONDS).status_code


def test_who_guesses_behind_a_proxy_locks_only_that_address_out(behind: Hall) -> None:
    anna = behind.person()
    with forwarding(behind.url, says(ONE)) as one, forwarding(behind.url, says(OTHER)) as other:
        assert [sign_in(one, anna.email, "wrong") for _ in range(3)] == [401, 401, 429]
        assert sign_in(one, anna.email, PASSWORD) == 429
        assert sign_in(one, anna.email, PASSWORD, **{"X-Forwarded-For": OTHER}) == 429, "it names another one in vain"
        assert sign_in(other, anna.email, PASSWORD) == 200
    wait_until(lambda: f"the last one from {ONE}: " in behind.log(), SECONDS, "the log names the address")


def test_who_is_no_proxy_cannot_choose_an_address(behind: Hall) -> None:
    email = f"{uuid.uuid4()}@example.org"
    at = urlsplit(behind.url)

    def guess(number: int) -> int:
        line = http.client.HTTPConnection(at.hostname or "", at.port, SECONDS, source_address=("127.0.0.2", 0))
        headers = {"Content-Type": "application/json", "X-Forwarded-For": f"198.51.100.{number}"}
        line.request("POST", "/auth/login", f'{{"email": "{email}", "password": "wrong"}}', headers)
        status = line.getresponse().status
        line.close()
        return status

    assert [guess(number) for number in range(3)] == [401, 401, 429]
    wait_until(lambda: "127.0.0.2 sends X-Forwarded-For" in behind.log(), SECONDS, "the log says so")
    assert behind.log().count("127.0.0.2 sends X-Forwarded-For") == 1


async def test_people_chat_through_a_proxy_under_the_public_address(behind: Hall) -> None:
    with forwarding(behind.url, says(ONE)) as url:
        names = {"Host": "chat.example.org", "Origin": PUBLIC}
        anna = Person(url)
        assert requests.get(f"{url}/rooms", headers={**anna.headers, **names}, timeout=SECONDS).status_code == 200
        room = anna.room()
        for transports in (["websocket"], ["polling"], None):
            client = socketio.AsyncClient(reconnection=False)
            await client.connect(url, auth={"token": anna.token}, headers=names, transports=transports)
            assert await client.call("joinRoom", {"roomId": room}, timeout=SECONDS) == {"success": True}
            await client.shutdown()
        for origin, status in ((PUBLIC, 200), ("http://chat.example.org", 403), ("https://evil.example", 403)):
            headers = {"Host": "chat.example.org", "Origin": origin}
            assert requests.get(f"{url}/health", headers=headers, timeout=SECONDS).status_code == status


def test_links_begin_with_the_public_address(behind: Hall, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KINGDOM_HOME", str(behind.places.home))
    for options in ([], ["--owner"]):
        done = CliRunner().invoke(hall_command, ["invite", *options])
        assert done.output.startswith(f"{PUBLIC}/#/join/"), done.output


def test_a_proxy_that_is_no_address_is_named_and_the_old_ones_stay(behind: Hall) -> None:
    (behind.places.config / "hall.yaml").write_text(yaml.safe_dump({**CONFIG, "trusted_proxies": ["10.0.0.0/99"]}))
    why = "hall.yaml: trusted_proxies: '10.0.0.0/99' does not appear to be an IPv4 or IPv6 network"
    wait_until(lambda: why in behind.log(), SECONDS, "the log names it")
    email = f"{uuid.uuid4()}@example.org"
    with forwarding(behind.url, says(ONE)) as one, forwarding(behind.url, says(OTHER)) as other:
        assert [sign_in(one, email, "wrong") for _ in range(3)] == [401, 401, 429]
        assert sign_in(other, email, "wrong") == 401
