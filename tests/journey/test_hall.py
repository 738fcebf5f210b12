"""A task asks in its room of the hall and people answer there; who is killed meanwhile loses and doubles nothing."""

from __future__ import annotations

import json
import os
import signal
import uuid
from collections.abc import Iterator

import pytest
import requests

from kingdom.hall.database.own_rooms import THRONE_ROOM
from tests.faults import trees
from tests.faults.oracle import Figure
from tests.hall.gateway.halls import PASSWORD, SECONDS, Person
from tests.journey.conftest import founded
from tests.journey.kingdoms import Kingdom
from tests.journey.test_slack import ASKS_THEN_DONE
from tests.ports import free_port

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::ResourceWarning")]
ROLES = ("gateway", "worker", "envoy")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def kingdom() -> Iterator[Kingdom]:
    def prepare(kingdom: Kingdom) -> None:
        (kingdom.places.config / "system.yaml").write_text("launcher: tmux\n")
        (kingdom.places.config / "hall.yaml").write_text(f"port: {free_port()}\n")

    yield from founded("tmux", prepare)


def owner(kingdom: Kingdom) -> Person:
    """Return somebody who has come by the owner's link."""
    url, _, code = kingdom.ok("hall", "invite", "--owner").strip().partition("/#/join/")
    given = {"email": f"{uuid.uuid4()}@example.org", "password": PASSWORD, "invite": code}
    assert requests.post(f"{url}/auth/register", json=given, timeout=SECONDS).status_code == 201
    return Person(url, given["email"])


def asked(kingdom: Kingdom, anna: Person) -> tuple[str, str]:
    """Let a task ask. Return it, and its room."""
    manifest = {"subscribes": ["jira.ticket.*"]}
    kingdom.ok("generals", "install", str(kingdom.general("gen-tickets", ASKS_THEN_DONE, **manifest)))
    kingdom.event("evt-jira-SHOP-7-1", "jira.ticket.assigned", payload={"ticket_key": "SHOP-7", "summary": "make it"})
    kingdom.until(lambda: anna.call("GET", "/kingdom").json()["asking"], "it asks")
    [question] = anna.call("GET", "/kingdom").json()["asking"]
    kingdom.until(lambda: "roomId" in anna.call("GET", "/kingdom").json()["asking"][0], "it asks in a room")
    room = str(anna.call("GET", "/kingdom").json()["asking"][0]["roomId"])
    assert question["choices"] == ["the shop", "the site"]

    def told() -> list[object]:
        return [line["about"] for line in anna.history(room) if line.get("about", {}).get("code") == "question"]

    kingdom.until(told, "the question is stored")
    assert told()[0] == {"taskId": question["taskId"], "code": "question", "choices": question["choices"]}
    return question["taskId"], room


async def test_a_question_in_a_room_takes_one_answer_and_the_task_goes_on_with_it(
    kingdom: Kingdom, figure: Figure
) -> None:
    anna = owner(kingdom)
    task, room = asked(kingdom, anna)
    async with anna.socket(room, THRONE_ROOM) as hers:
        assert (await hers.send(room, "the site"))["status"] == "ACCEPTED"
        late = kingdom.run("say", "--answer", task, "the shop")
        await hers.wait("newMessage", lambda told: told["content"].startswith("[complete]"))
    check_one_answer(kingdom, anna, task, room)
    assert late.returncode == 0 or "already answered" in late.stderr
    kingdom.until(lambda: anna.call("GET", "/kingdom").json()["asking"] == [], "nothing asks any more")
    figure("row 27 a question answered in its room and on the console: 1 answer counts")


def check_one_answer(kingdom: Kingdom, anna: Person, task: str, room: str) -> None:
    [resumed] = [done for done in kingdom.all("tasks", "completed") if done["type"] == "resume"]
    assert resumed["thread_task_id"] == task
    said = [(line["type"], line["content"].split()[0]) for line in anna.history(room)]
    heads = [head for type, head in said if type == "SYSTEM"]
    assert (heads[1:3], heads[-1], heads.count("[complete]")) == (["[question]", "answer"], "[complete]", 1)
    ids = [line["clientMsgId"] for line in anna.history(room)]
    assert len(set(ids)) == len(ids)


@trees.in_campaigns
@pytest.mark.parametrize("killed", [(role,) for role in ROLES] + [ROLES])
async def test_who_is_killed_while_it_asks_loses_and_doubles_nothing(killed: tuple[str, ...], kingdom: Kingdom) -> None:
    anna = owner(kingdom)
    task, room = asked(kingdom, anna)
    answer = {"roomId": room, "clientMsgId": str(uuid.uuid4()), "content": "the site"}
    async with anna.socket(room) as hers:
        for role in killed:
            os.kill(int(kingdom.beat(role)["pid"]), signal.SIGKILL)
        if "gateway" not in killed:
            assert (await hers.call("sendMessage", answer))["status"] == "ACCEPTED"
    kingdom.until(lambda: health(anna) == 200, "the gateway is back")
    async with anna.socket(room) as hers:  # as a client that has come back: again, under the same id
        assert (await hers.call("sendMessage", answer))["status"] == "ACCEPTED"
    late = kingdom.run("say", "--answer", task, "the shop")
    kingdom.until(lambda: any(t.startswith("[complete]") for t in kingdom.messages(task)), "it is done")
    kingdom.until(lambda: anna.history(room)[-1]["content"].startswith("[complete]"), "that is told in the room")
    check_one_answer(kingdom, anna, task, room)
    assert [line["clientMsgId"] for line in anna.history(room) if line["type"] == "TEXT"] == [answer["clientMsgId"]]
    assert late.returncode == 0 or "already answered" in late.stderr, late.stderr
    assert json.loads((kingdom.places.own("envoy") / "awaiting-responses.json").read_text()) == []


def health(anna: Person) -> int:
    try:
        return anna.call("GET", "/health").status_code
    except requests.RequestException:
        return 0
