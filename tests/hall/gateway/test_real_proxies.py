"""The recipes of docs/chat.md, with a real nginx and a real Caddy, and TLS by a local authority."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import ssl
import subprocess
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import aiohttp
import pytest
import requests
import socketio

from tests.certificates import certified
from tests.hall.gateway.halls import CHECKOUT, OPEN, PASSWORD, SECONDS, running
from tests.ports import free_port
from tests.waiting import wait_until

pytestmark = pytest.mark.anyio


def recipe(language: str) -> str:
    """Return the recipe as the page has it."""
    found = re.search(rf"```{language}\n(.*?)```", (CHECKOUT / "docs/chat.md").read_text(), re.DOTALL)
    assert found is not None
    return found[1]


def nginx(folder: Path, port: int, gateway: int) -> list[str]:
    given = recipe("nginx")
    for ours, theirs in (
        ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"),
        ("chat.example.org;", "localhost;"),
        ("/etc/ssl/certs/chat.example.org.pem", f"{folder}/own.pem"),
        ("/etc/ssl/private/chat.example.org.key", f"{folder}/own.key"),
        ("127.0.0.1:7700", f"127.0.0.1:{gateway}"),
    ):
        assert ours in given
        given = given.replace(ours, theirs)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temporary = "".join(f"{kind}_temp_path {folder}/{kind};\n" for kind in kinds)
    as_root = "user root;\n" if os.geteuid() == 0 else ""
    within = f"http {{\naccess_log off;\n{temporary}{given}}}\n"
    (folder / "nginx.conf").write_text(f"{as_root}daemon off;\npid {folder}/pid;\nevents {{}}\n{within}")
    return ["nginx", "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", str(folder / "error.log")]


def caddy(folder: Path, port: int, gateway: int) -> list[str]:
    given = recipe("caddy").replace("chat.example.org {", f"localhost {{\n    tls {folder}/own.pem {folder}/own.key")
    given = given.replace("127.0.0.1:7700", f"127.0.0.1:{gateway}")
    options = (
        f"{{\n    admin off\n    https_port {port}\n    default_bind 127.0.0.1\n    auto_https disable_redirects\n}}\n"
    )
    (folder / "Caddyfile").write_text(options + given)
    return ["caddy", "run", "--adapter", "caddyfile", "--config", str(folder / "Caddyfile")]


@contextmanager
def proxy(make: Callable[[Path, int, int], list[str]], folder: Path, port: int, gateway: int) -> Iterator[None]:
    environment = {**os.environ, "HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    with (folder / "out").open("wb") as out:
        process = subprocess.Popen(make(folder, port, gateway), env=environment, stdout=out, stderr=out)
    try:

        def answers() -> bool:
            assert process.poll() is None, (folder / "out").read_text()
            try:
                return requests.get(f"https://localhost:{port}/health", verify=folder / "ca.pem", timeout=2).ok
            except requests.ConnectionError:
                return False

        wait_until(answers, SECONDS, "the proxy answers")
        yield
    finally:
        process.terminate()
        process.wait(SECONDS)


@pytest.mark.parametrize("make", [nginx, caddy], ids=["nginx", "caddy"])
async def test_people_chat_through_a_real_proxy_with_tls(
    make: Callable[[Path, int, int], list[str]], tmp_path: Path
) -> None:
    if shutil.which(make.__name__) is None:
        pytest.skip(f"no {make.__name__} here")
    authority, port, gateway = certified(tmp_path).authority, free_port(), free_port()
    public = f"https://localhost:{port}"
    limits = {"wrong_passwords": {"count": 2, "seconds": 600}}
    config = {**OPEN, "port": gateway, "public_url": public, "trusted_proxies": ["127.0.0.1"], "limits": limits}
    with running("gateway", "worker", config=config), proxy(make, tmp_path, port, gateway):
        context = ssl.create_default_context(cafile=str(authority))
        given = {"email": f"{uuid.uuid4()}@example.org", "password": PASSWORD}

        def post(path: str, source: str = "127.0.0.1", token: str = "", **body: str) -> tuple[int, dict[str, str]]:
            line = http.client.HTTPSConnection(
                "127.0.0.1", port, timeout=SECONDS, context=context, source_address=(source, 0)
            )
            headers = {"Content-Type": "application/json", "Origin": public, "Authorization": f"Bearer {token}"}
            with closing(line):
                line.request("POST", path, json.dumps(body), {**headers, "Host": f"localhost:{port}"})
                answer = line.getresponse()
                return answer.status, json.loads(answer.read())

        assert post("/auth/register", **given)[0] == 201
        wrong = {**given, "password": "wrong"}
        assert [post("/auth/login", "127.0.0.2", **wrong)[0] for _ in range(3)] == [401, 401, 429]
        status, signed_in = post("/auth/login", **given)
        assert status == 200, "who guesses elsewhere locks nobody out"
        token = signed_in["accessToken"]
        room = post("/rooms", token=token, name="a room")[1]["id"]
        for transports in (["websocket"], ["polling"], None):
            await chat(context, public, token, room, transports)


async def chat(context: ssl.SSLContext, url: str, token: str, room: str, transports: list[str] | None) -> None:
    """Send a message through the proxy, and hear it."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:
        options = {"ssl": context}
        client = socketio.AsyncClient(reconnection=False, http_session=session, websocket_extra_options=options)
        heard = socketio.AsyncSimpleClient(http_session=session, websocket_extra_options=options)
        headers = {"Origin": url}
        await heard.connect(url, auth={"token": token}, headers=headers, transports=transports)
        await client.connect(url, auth={"token": token}, headers=headers, transports=transports)
        assert await heard.call("joinRoom", {"roomId": room}, timeout=SECONDS) == {"success": True}
        message = {"roomId": room, "clientMsgId": str(uuid.uuid4()), "content": f"by {transports}"}
        assert (await client.call("sendMessage", message, timeout=SECONDS))["status"] == "ACCEPTED"
        while (said := await heard.receive(timeout=SECONDS))[0] != "newMessage":
            pass
        assert said[1]["content"] == message["content"]
        await client.disconnect()
        await heard.disconnect()
