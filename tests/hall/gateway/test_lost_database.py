"""The database's file is deleted while people chat: nothing is accepted that nobody could store; then all goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import requests

from tests.hall.gateway.halls import SECONDS, Hall, Person, running
from tests.waiting import wait_until

pytestmark = pytest.mark.anyio


def health(hall: Hall) -> tuple[int, dict[str, Any]]:
    answer = requests.get(f"{hall.url}/health", timeout=SECONDS)
    return answer.status_code, answer.json()


def said_in(room: str, reader: Person) -> Iterator[str]:
    """Yield everything that was said in a room, the oldest first."""
    after = "0" * 26
    while page := reader.history(room, limit=100, after=after):
        yield from (message["content"] for message in page)
        after = page[-1]["id"]


async def test_messages_are_refused_while_the_file_is_gone_and_stored_when_it_is_back() -> None:
    with running("gateway", "worker") as hall:
        await check(hall, hall.person())


async def check(hall: Hall, anna: Person) -> None:
    room, file = anna.room(), hall.places.hall / "hall.db"
    async with anna.socket(room) as socket:
        assert (await socket.send(room, "before"))["status"] == "ACCEPTED"
        await socket.wait("newMessage")
        away = file.rename(file.with_name("away"))
        accepted = ["before"]
        async with asyncio.timeout(SECONDS):
            while (answer := await socket.send(room, f"{len(accepted)}"))["status"] == "ACCEPTED":
                accepted.append(f"{len(accepted)}")
        assert answer["error"] == "Message delivery failed"
        code, said = health(hall)
        assert (code, list(said["error"])) == (503, ["database"])
        wait_until(lambda: hall.log().count("hall.db is gone") >= 2, SECONDS, "gateway and worker say so")
        assert "alert: " in hall.log()
        wait_until(lambda: health(hall)[1]["details"]["worker"] == {"status": "down"}, SECONDS, "the worker waits")
        assert not file.exists()
        away.rename(file)
        wait_until(lambda: health(hall)[0] == 200, SECONDS, "the database is back")
        wait_until(lambda: health(hall)[1]["details"]["worker"] == {"status": "up"}, SECONDS, "the worker goes on")
        async with asyncio.timeout(SECONDS):
            while (await socket.send(room, "after"))["status"] != "ACCEPTED":
                await asyncio.sleep(0.05)
        await socket.wait("newMessage", lambda message: message["content"] == "after")
    assert list(said_in(room, anna)) == [*accepted, "after"]
