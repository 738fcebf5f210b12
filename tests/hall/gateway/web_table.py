"""What a foreign page or a forger may try with the gateway: a table of requests and their answers."""

from __future__ import annotations

import socket
import time
import uuid
from typing import Any
from urllib.parse import urlsplit

import jwt
import psutil

from kingdom.hall.gateway.tokens import ALGORITHM, AUDIENCE
from tests.hall.gateway.halls import PASSWORD, SECONDS, Hall, Person

HTML = "<img src=x onerror=alert(1)><script>alert(2)</script>"
LISTED = "https://listed.example"
WEBSOCKET = "/socket.io/?EIO=4&transport=websocket"
UPGRADE = ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"]
UPGRADE += ["Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="]


def request(url: str, method: str, path: str, *headers: str, host: str = "", body: str = "") -> tuple[int, str]:
    """Send a request with these headers; return its status and what comes back, of a web socket its head alone."""
    address = urlsplit(url)
    assert address.hostname
    upgrade = UPGRADE if path == WEBSOCKET else ["Connection: close"]
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host or address.netloc}", *upgrade, *headers]
    lines += [f"Content-Length: {len(body.encode())}", "", body]
    with socket.create_connection((address.hostname, address.port), SECONDS) as connection:
        connection.sendall("\r\n".join(lines).encode())
        got = b""
        while b"\r\n\r\n" not in got or path != WEBSOCKET:
            if not (part := connection.recv(65_536)):
                break
            got += part
    return int(got.split(b" ", 2)[1]), got.decode("utf-8", "replace")


def forged(hall: Hall, person: Person) -> dict[str, tuple[str, bool]]:
    """Tokens by what is wrong with them, and whether they are good after all."""
    secret = (hall.places.own("gateway") / "secret").read_bytes()
    now = int(time.time())
    session = jwt.decode(person.token, secret, [ALGORITHM], audience=AUDIENCE)["sid"]
    good: dict[str, Any] = {"sub": person.id, "email": person.email, "sid": session, "aud": AUDIENCE}
    good |= {"iat": now, "exp": now + 60}
    head, claims, _ = jwt.encode(good, secret, ALGORITHM).split(".")
    return {
        "good": (jwt.encode(good, secret, ALGORITHM), True),
        "alg none": (jwt.encode(good, "", "none"), False),
        "no signature": (f"{head}.{claims}.", False),
        "another key": (jwt.encode(good, b"x" * 64, ALGORITHM), False),
        "an empty key": (jwt.encode(good, b"\0" * 32, ALGORITHM), False),
        "another algorithm": (jwt.encode(good, secret, "HS384"), False),
        "ended": (jwt.encode({**good, "exp": now - 1}, secret, ALGORITHM), False),
        "no end": (jwt.encode({k: v for k, v in good.items() if k != "exp"}, secret, ALGORITHM), False),
        "another audience": (jwt.encode({**good, "aud": "elsewhere"}, secret, ALGORITHM), False),
        "no session": (jwt.encode({k: v for k, v in good.items() if k != "sid"}, secret, ALGORITHM), False),
        "an unknown session": (jwt.encode({**good, "sid": person.id}, secret, ALGORITHM), False),
        "no audience": (jwt.encode({k: v for k, v in good.items() if k != "aud"}, secret, ALGORITHM), False),
        "from tomorrow": (jwt.encode({**good, "iat": now + 86_400}, secret, ALGORITHM), False),
    }


def wrong_tokens(hall: Hall, person: Person) -> list[str]:
    found = []
    for name, (token, is_good) in forged(hall, person).items():
        status, _ = request(hall.url, "GET", "/rooms", f"Authorization: Bearer {token}")
        if status != (200 if is_good else 401):
            found.append(f"a token with {name} gets {status}")
        cookie, _ = request(hall.url, "GET", "/rooms", f"Cookie: token={token}; accessToken={token}")
        if cookie != 401:
            found.append(f"a cookie with a token, {name}, gets {cookie}")
    return found


PATHS = ("/health", "/socket.io/?EIO=4&transport=polling", WEBSOCKET)


def hosts_and_origins(hall: Hall) -> tuple[dict[str, int], dict[str, int]]:
    """Return Hosts and Origins, and how each is answered."""
    port = urlsplit(hall.url).port
    ours = urlsplit(hall.url).netloc
    hosts = {
        ours: 200,
        f"localhost:{port}": 200,
        f"[::1]:{port}": 200,
        "localhost": 200,
        "listed.example": 200,
        "evil.example": 403,
        f"evil.example:{port}": 403,
        "127.0.0.1.evil.example": 403,
        "localhost@evil.example": 403,
        "169.254.169.254": 403,
    }
    origins = {
        f"http://{ours}": 200,
        LISTED: 200,
        "http://evil.example": 403,
        "null": 403,
        f"http://{ours}.evil.example": 403,
        f"http://127.0.0.1:{port}1": 403,
        "https://listed.example.evil.example": 403,
    }
    return hosts, origins


def wrong_hosts_and_origins(hall: Hall) -> list[str]:
    hosts, origins = hosts_and_origins(hall)
    found = []
    for path in PATHS:
        good = 101 if path == WEBSOCKET else 200
        for host, status in hosts.items():
            got, _ = request(hall.url, "GET", path, host=host)
            if got != (good if status == 200 else status):
                found.append(f"{path} with Host {host} gets {got}")
        for origin, status in origins.items():
            got, answer = request(hall.url, "GET", path, f"Origin: {origin}")
            if got != (good if status == 200 else status):
                found.append(f"{path} with Origin {origin} gets {got}")
            if status != 200 and "access-control-allow-origin" in answer.lower():
                found.append(f"{path} lets the page of {origin} read the answer")
    return found


def wrong_cross_site(hall: Hall, person: Person) -> list[str]:
    """What a form or a script on another page can send."""
    form = ["Content-Type: application/x-www-form-urlencoded", "Origin: http://evil.example"]
    body = '{"name":"forged"}'
    sent, _ = request(hall.url, "POST", "/rooms", f"Authorization: Bearer {person.token}", *form, body=body)
    asked = ["Origin: http://evil.example", "Access-Control-Request-Method: POST"]
    preflight, answer = request(hall.url, "OPTIONS", "/rooms", *asked)
    found = [] if sent == 403 else [f"a form of another page gets {sent}"]
    if preflight != 403 or "access-control-allow" in answer.lower():
        found.append(f"another page may ask: {preflight}")
    asked[0] = f"Origin: {LISTED}"
    preflight, answer = request(hall.url, "OPTIONS", "/rooms", *asked)
    if preflight != 204 or f"access-control-allow-origin: {LISTED}" not in answer.lower():
        found.append(f"a listed page may not ask: {preflight}")
    return found


def wrong_html(hall: Hall, person: Person) -> list[str]:
    """Check that names come back unchanged, in JSON, which no browser shows as a page."""
    made = person.call("POST", "/rooms", json={"name": HTML})
    found = [] if made.json()["name"] == HTML else ["a name is changed"]
    listed = person.call("GET", "/rooms")
    kinds = {answer.headers["Content-Type"].partition(";")[0] for answer in (made, listed)}
    if kinds != {"application/json"}:
        found.append(f"names come as {kinds}")
    missing, answer = request(hall.url, "GET", f"/{HTML.replace(' ', '%20')}")
    if missing != 404 or "text/html" in answer:
        found.append(f"a path with markup gets {missing}")
    return found


def wrong_rates(hall: Hall, most: int) -> list[str]:
    """So many tries to sign in from one address, and no more."""
    bodies = [f'{{"email":"{uuid.uuid4()}@example.org","password":"guess"}}' for _ in range(most + 1)]
    statuses = [request(hall.url, "POST", "/auth/login", body=body)[0] for body in bodies]
    return [] if 429 in statuses else [f"{most + 1} tries to sign in get {set(statuses)}"]


def wrong_guesses(hall: Hall, most: int) -> list[str]:
    """So many wrong passwords of one account, and then not even the right one; others sign in as ever."""
    ben = hall.person()
    asked = [(f"guess {number}", 401) for number in range(most)] + [(PASSWORD, 429)]
    bodies = [f'{{"email":"{ben.email}","password":"{password}"}}' for password, _ in asked]
    statuses = [request(hall.url, "POST", "/auth/login", body=body)[0] for body in bodies]
    hall.person()
    return (
        [] if statuses == [status for _, status in asked] else [f"{most} wrong passwords and the right one: {statuses}"]
    )


def wrong_listeners(hall: Hall) -> list[str]:
    process = psutil.Process(hall.pid("gateway"))
    listening = {c.laddr for c in process.net_connections(kind="all") if c.status == psutil.CONN_LISTEN}
    odd = {address for address in listening if address.port != urlsplit(hall.url).port}
    foreign = {address for address in listening if address.ip not in ("127.0.0.1", "::1")}
    return [f"it listens on {address}" for address in odd | foreign]
