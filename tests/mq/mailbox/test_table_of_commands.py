"""The table of commands is true: a row is all that a command needs, and names all fields that it reads."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from kingdom.mq.call_fields import (
    Call,
    Choice,
    Data,
    Duration,
    Field,
    Flag,
    Json,
    Objects,
    Priority,
    Text,
    Texts,
    Visibility,
    Whole,
)
from kingdom.mq.calls import CALLS, CommandRow, OngoingCall
from kingdom.mq.client import Client
from kingdom.mq.errors import Refusal
from kingdom.mq.mailbox.commands import COMMANDS, CommandContext
from tests.mq.mailbox.boxes import ByHand
from tests.waiting import SOON, wait_until

WORDS, TIMES = Text("words"), Whole("times", 1, 1, 3)


def echo(context: CommandContext, call: Call) -> Data:
    return {"said": call[WORDS] * call[TIMES]}


@pytest.fixture
def with_echo(box: ByHand, monkeypatch: pytest.MonkeyPatch) -> ByHand:
    monkeypatch.setitem(COMMANDS, "echo", CommandRow(echo, (WORDS, TIMES), aliases=("say", "repeat")))
    return box


def test_one_more_row_is_served_under_all_its_names(with_echo: ByHand) -> None:
    for name in ("echo", "Echo", "say", "REPEAT"):
        assert with_echo.data(name, {"words": "hi", "times": 2}) == {"said": "hihi"}
    assert with_echo.data("metrics")["commands"]["echo"] == 4
    assert "echo" in with_echo.ask("nonsense")["error"]["message"]


@pytest.mark.parametrize("payload", [{}, {"words": None}, {"words": 7}, {"words": "hi", "times": 4}, {"words": ""}])
def test_one_more_row_refuses_bad_input(with_echo: ByHand, payload: Any) -> None:
    assert with_echo.code("say", payload) == "ERR_INVALID_REQUEST"
    metrics = with_echo.data("metrics")
    assert (metrics["commands"]["echo"], metrics["errors"]["validation"]) == (1, 1)


def test_the_client_calls_one_more_row_by_its_name(with_echo: ByHand) -> None:
    def ask() -> Data:
        with Client(with_echo.box.root, timeout=SOON) as client:
            return client.call("say", {"words": "hi"})

    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask)
        wait_until(lambda: with_echo.turn() or asked.done(), SOON, "the client has its answer")  # type: ignore[func-returns-value]
    assert asked.result() == {"said": "hi"}


def test_one_more_row_can_wait_for_its_answer(box: ByHand, monkeypatch: pytest.MonkeyPatch) -> None:
    def count(context: CommandContext, call: Call) -> Data:
        return {"ready": context.engine.status(call[Text("queue")]).ready}

    monkeypatch.setitem(COMMANDS, "count", CommandRow(count, nothing={"ready": 0}))
    box.data("publish", {"queue": "q", "message": 1})
    box.data("purge", {"queue": "q"})
    name = box.post("count", {"queue": "q", "waitMs": 60_000})
    box.turn()
    assert box.answer(name) is None
    box.data("publish", {"queue": "q", "message": 1})
    assert (box.answer(name) or {})["data"] == {"ready": 1}


class Recorded(dict[str, Any]):
    """A payload that notes which of its fields are read."""

    read: set[str]

    def get(self, key: str, default: Any = None) -> Any:
        self.read.add(key)
        return super().get(key, default)

    def __contains__(self, key: object) -> bool:
        self.read.add(str(key))
        return super().__contains__(key)


GOOD: dict[type[Field[Any]], Any] = {
    Text: "q",
    Texts: ["msg:q:1"],
    Choice: "TIMEOUT",
    Whole: 1,
    Priority: 1,
    Duration: 1,
    Flag: True,
    Json: "1",
    Objects: [{"message": 1}],
    Visibility: 5,
}


def good(name: str) -> dict[str, Any]:
    return {field.name: GOOD[type(field)] for field in COMMANDS[name].fields}


@pytest.mark.parametrize("name", CALLS)
def test_a_row_names_the_fields_that_its_command_reads(box: ByHand, name: str) -> None:
    box.data("publish", {"queue": "q", "message": 1})
    read: set[str] = set()
    for left_out in ("", "messageKey"):  # one call reads other fields when it has no key
        payload = Recorded({key: value for key, value in good(name).items() if key != left_out})
        payload.read = read
        with suppress(Refusal):
            OngoingCall(CALLS[name], Call(payload, "me")).go_on(box.engine)
    assert read == {field.name for field in CALLS[name].fields}


WRONG = [(name, field.name) for name, row in COMMANDS.items() for field in row.fields if not isinstance(field, Json)]


@pytest.mark.parametrize(("name", "field"), WRONG)
def test_a_field_of_another_type_is_refused(box: ByHand, name: str, field: str) -> None:
    box.data("publish", {"queue": "q", "message": 1})
    payload = {**good(name), field: {}}
    if name == "reprocess_dlq" and field != "messageKey":
        del payload["messageKey"]
    assert box.code(name, payload) == "ERR_INVALID_REQUEST"
