"""Every letter is said once, in its task's thread, the most urgent first, whatever was interrupted before."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kingdom.disk.codec import read_json
from kingdom.envoy.channels import CHANNELS
from kingdom.envoy.conversations import SENDERS
from kingdom.envoy.outbound import Outbound
from kingdom.home.places import Places
from kingdom.home.schemas import load
from kingdom.records import notes
from kingdom.runtime.role import Services
from tests.envoy import grumpy
from tests.fixtures import MORNING, Clock, here, message, put, read, services, write

TASK = "task-20260207-001"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(autouse=True)
def a_grumpy_channel(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(CHANNELS, "grumpy", "tests.envoy.grumpy:Grumpy")
    grumpy.said.clear()
    grumpy.refusals.clear()
    yield
    grumpy.said.clear()


class Envoy(NamedTuple):
    services: Services
    mouth: Outbound


def speak(home: Path, clock: Clock, envoy: Envoy | None = None) -> Envoy:
    """A new envoy, or the one there is, until nothing is left to say."""
    if envoy is None:
        given = services(home, "envoy", clock)
        envoy = Envoy(given, Outbound(given))
    for _ in range(100):
        if not envoy.mouth.turn(None).worked:
            break
    else:
        raise AssertionError("it never comes to rest")
    envoy.services.log.flush()
    return envoy


def rest(home: Path, clock: Clock, envoy: Envoy, turns: int = 1) -> None:
    """Let it look a few times, whatever it finds."""
    for _ in range(turns):
        envoy.mouth.turn(None)


def transcript(home: Path) -> list[dict[str, Any]]:
    days = sorted((Places(home).own("envoy") / "console").glob("*.jsonl"))
    return [json.loads(line) for day in days for line in day.read_text().splitlines()]


def spoken(home: Path) -> list[str]:
    return [line["letter"] for line in transcript(home)]


def traces(home: Path) -> list[str]:
    own = Places(home).own("envoy")
    return sorted(path.name for folder in ("intents", "receipts") for path in (own / folder).iterdir())


def test_without_a_word_of_arrivals_it_looks_by_itself_in_time(home: Path, clock: Clock) -> None:
    monotonic = Clock()
    given = replace(
        services(home, "envoy", clock, envoy={"intervals": {"message_check_seconds": 7}}), monotonic=monotonic
    )
    mouth = Outbound(given)
    assert mouth.turn({}).wait == 7
    put(home, "messages", "pending", **message("msg-1"))
    monotonic.pass_(6)
    assert not mouth.turn({}).worked
    monotonic.pass_(1)
    assert mouth.turn({}).worked
    assert spoken(home) == ["msg-1"]


def test_a_letter_is_said_and_filed_with_its_address(home: Path, clock: Clock) -> None:
    services(home, "envoy", clock)
    put(home, "messages", "pending", **message(channel="dev-eddy", colour="blue"))
    speak(home, clock)
    (line,) = transcript(home)
    assert (line["letter"], line["room"], line["text"]) == ("msg-1", "dev-eddy", "content of msg-1")
    filed = read(home, "messages", "sent", "msg-1")
    assert (filed["status"], filed["colour"]) == ("sent", "blue")
    assert filed["posted"] == {"channel": "console", "room": "dev-eddy", "post": line["ts"], "thread": None}
    assert (here(home, "messages", "pending"), traces(home)) == ([], [])


def test_the_most_urgent_is_said_first(home: Path, clock: Clock) -> None:
    services(home, "envoy", clock)
    put(home, "messages", "pending", **message("msg-4", created_at="2026-01-01T00:00:00Z"))
    put(home, "messages", "pending", **message("msg-5"))
    put(home, "messages", "pending", **message("msg-20"))
    put(home, "messages", "pending", **message("msg-2", urgency="high"))
    put(home, "messages", "pending", **message("msg-3", urgency="urgent"))
    speak(home, clock)
    assert spoken(home) == ["msg-3", "msg-2", "msg-4", "msg-5", "msg-20"]


def test_more_than_one_batch_keeps_the_order(home: Path, clock: Clock) -> None:
    services(home, "envoy", clock)
    names = [f"msg-{number:03d}" for number in range(70)]
    for name in names:
        put(home, "messages", "pending", **message(name))
    speak(home, clock)
    assert spoken(home) == names


# --- threads


def start(home: Path, name: str = "msg-1", task: str = TASK, **fields: Any) -> None:
    put(home, "messages", "pending", **message(name, "thread_start", task_id=task, channel="dev-eddy", **fields))


def threads(home: Path) -> dict[str, Any]:
    path = Places(home).own("envoy") / "thread-mappings.json"
    return read_json(path) if path.exists() else {}


def test_a_tasks_letters_hang_under_its_first(home: Path, clock: Clock) -> None:
    envoy = speak(home, clock)
    start(home)
    envoy = speak(home, clock, envoy)
    for number, type in enumerate(("thread_update", "thread_reply", "human_input_request", "notification"), 2):
        put(home, "messages", "pending", **message(f"msg-{number}", type, task_id=TASK))
    speak(home, clock)
    first, *others = transcript(home)
    assert first["thread"] is None
    assert {line["thread"] for line in others} == {first["ts"]}
    assert {line["room"] for line in others} == {"dev-eddy"}


def test_a_thread_is_opened_before_the_question_that_overtakes_it(home: Path, clock: Clock) -> None:
    services(home, "envoy", clock)
    for number in range(60):
        start(home, f"msg-1{number:02d}", f"task-{number}", created_at="2026-01-01T00:00:00Z")
    start(home, "msg-500")
    put(home, "messages", "pending", **message("msg-501", "human_input_request", task_id=TASK, urgency="high"))
    put(home, "messages", "pending", **message("msg-502", urgency="urgent"))
    speak(home, clock)
    assert spoken(home)[:3] == ["msg-502", "msg-500", "msg-501"]
    lines = {line["letter"]: line for line in transcript(home)}
    assert lines["msg-501"]["thread"] == lines["msg-500"]["ts"]
    assert len(spoken(home)) == 63


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        ({"dedup_key": f"{TASK}:notification:success"}, False),
        ({"dedup_key": f"{TASK}:notification:failed"}, False),
        ({"dedup_key": "task-20260207-009:notification:success"}, False),
        ({"dedup_key": f"{TASK}:human_input_request:needs_human", "type": "human_input_request"}, True),
        ({"dedup_key": f"{TASK}:thread_update:open", "type": "thread_update"}, True),
        ({"code": "completed"}, False),
        ({"code": "unanswerable"}, True),
        ({"code": "alert"}, True),
        ({"dedup_key": None}, False),
        ({"dedup_key": f"{TASK}:proclamation", "task_id": f"proclamation-{TASK}"}, True),
    ],
)
def test_a_final_word_ends_the_thread_and_nothing_else_does(
    home: Path, clock: Clock, fields: dict[str, Any], kept: bool
) -> None:
    services(home, "envoy", clock)
    start(home)
    envoy = speak(home, clock)
    put(home, "messages", "pending", **{**message("msg-2", task_id=TASK), **fields})
    speak(home, clock, envoy)
    assert (TASK in threads(home)) is kept


def test_news_for_another_channel_leave_the_thread(home: Path, clock: Clock) -> None:
    services(home, "envoy", clock)
    start(home)
    put(home, "messages", "pending", **message("msg-2", task_id=TASK, channel="C9"))
    put(home, "messages", "pending", **message("msg-3", task_id=f"proclamation-{TASK}", channel="C0TEAMCH"))
    speak(home, clock)
    assert [(line["room"], line["thread"]) for line in transcript(home)[1:]] == [("C9", None), ("C0TEAMCH", None)]


def test_a_question_is_awaited_with_its_context(home: Path, clock: Clock) -> None:
    services(home, "envoy", clock)
    start(home)
    context = {"checkpoint_path": "/c", "reply_context": {"general": "gen-pr"}}
    put(home, "messages", "pending", **message("msg-2", "human_input_request", task_id=TASK, context=context))
    speak(home, clock)
    page = read_json(Places(home).own("envoy") / "awaiting-responses.json")[TASK]
    assert page["reply_context"] == {"general": "gen-pr"}
    assert page["thread"] == threads(home)[TASK]["thread"]
    assert page["asked_at"] == MORNING


def test_a_question_that_was_answered_before_it_was_asked_is_not_awaited(home: Path, clock: Clock) -> None:
    envoy = speak(home, clock)
    notes.note_answer(envoy.services.places, envoy.services.disk, TASK, "evt-1")
    put(home, "messages", "pending", **message("msg-2", "human_input_request", task_id=TASK))
    speak(home, clock, envoy)
    assert spoken(home) == ["msg-2"]
    assert awaiting(home) == []


def test_a_failure_is_said_with_how_to_look_further(home: Path, clock: Clock) -> None:
    services(home, "envoy", clock)
    put(home, "messages", "pending", **message(content="[failed] no", context={"failed_task": TASK}))
    speak(home, clock)
    assert transcript(home)[0]["text"] == f"[failed] no\n`kingdom why {TASK}` shows more"
    assert read(home, "messages", "sent", "msg-1")["content"] == "[failed] no"


def awaiting(home: Path) -> list[str]:
    path = Places(home).own("envoy") / "awaiting-responses.json"
    return sorted(read_json(path)) if path.exists() else []


def test_a_question_is_awaited_until_its_own_answer_has_come(home: Path, clock: Clock) -> None:
    """The second question of a thread overtakes the word that the first one was answered."""
    envoy = speak(home, clock)
    start(home)
    for number, asker in ((2, TASK), (3, "task-20260207-002")):
        way_back = {"reply_context": {"task_id": asker, "thread_task_id": TASK}}
        letter = message(f"msg-{number}", "human_input_request", task_id=TASK, urgency="high", context=way_back)
        put(home, "messages", "pending", **letter)
    speak(home, clock, envoy)
    assert awaiting(home) == [TASK, "task-20260207-002"]
    put(home, "messages", "pending", **message("msg-4", "thread_update", task_id=TASK, context={"answers": TASK}))
    speak(home, clock, envoy)
    assert awaiting(home) == ["task-20260207-002"]


def test_a_letter_goes_back_the_way_its_cause_came(home: Path, clock: Clock) -> None:
    services(home, "envoy", clock)
    put(home, "messages", "pending", **message(channel="C1", source_ref={"source": "grumpy"}))
    put(home, "messages", "pending", **message("msg-2", channel="C1", source_ref={"source": "nobody"}))
    speak(home, clock)
    assert (grumpy.said, spoken(home)) == ([("msg-1", "C1", None)], ["msg-2"])


@pytest.mark.parametrize(
    "book", ["{half", "[]", f'{{"{TASK}": 5}}', f'{{"{TASK}": {{}}}}', f'{{"{TASK}": {{"thread_ts": "1.2"}}}}']
)
def test_a_damaged_book_of_threads_silences_nobody(home: Path, clock: Clock, book: str) -> None:
    services(home, "envoy", clock)
    own = Places(home).own("envoy")
    (own / "thread-mappings.json").write_text(book)
    (own / "awaiting-responses.json").write_text(book)
    put(home, "messages", "pending", **message(task_id=TASK))
    speak(home, clock)
    assert spoken(home) == ["msg-1"]


def test_a_thread_on_a_channel_that_is_gone_is_a_refusal(home: Path, clock: Clock) -> None:
    services(home, "envoy", clock, envoy={"retry": {"attempts": 1}})
    page = {"channel": "pigeon", "room": "r", "thread": "t"}
    write(Places(home).own("envoy") / "thread-mappings.json", {TASK: page})
    put(home, "messages", "pending", **message(task_id=TASK))
    speak(home, clock)
    assert "pigeon did not take" in read(home, "messages", "failed", "msg-1")["refused_because"]


# --- never twice


def intent(home: Path, name: str = "msg-1") -> None:
    write(Places(home).own("envoy") / "intents" / f"{name}.json", {"letter": name, "since": MORNING})


def post(home: Path, clock: Clock, name: str = "msg-1") -> str:
    from kingdom.envoy.channels.console import Console

    given = services(home, "envoy", clock)
    return Console(given.places.own("envoy") / "console", given.disk, clock).post(name, "room", "x", None)


def _posted(home: Path, clock: Clock) -> None:
    intent(home)
    post(home, clock)


def _receipt(home: Path, clock: Clock) -> None:
    intent(home)
    ts = post(home, clock)
    write(Places(home).own("envoy") / "receipts" / "msg-1.json", {"letter": "msg-1", "post": ts})


INTERRUPTED: dict[str, Callable[[Path, Clock], object]] = {
    "before it was said": lambda home, clock: intent(home),
    "before the receipt": _posted,
    "before it was filed": _receipt,
}


@pytest.mark.parametrize("moment", INTERRUPTED)
@pytest.mark.parametrize("type", ["notification", "thread_start"])
def test_an_envoy_killed_at_any_moment_says_it_once(home: Path, clock: Clock, moment: str, type: str) -> None:
    services(home, "envoy", clock)
    (Places(home).own("envoy") / "intents").mkdir(parents=True)
    (Places(home).own("envoy") / "receipts").mkdir()
    INTERRUPTED[moment](home, clock)
    put(home, "messages", "pending", **message(type=type, task_id=TASK))
    speak(home, clock)
    assert spoken(home) == ["msg-1"]
    assert (here(home, "messages", "sent"), traces(home)) == (["msg-1"], [])
    assert read(home, "messages", "sent", "msg-1")["posted"]["post"] == transcript(home)[0]["ts"]
    if type == "thread_start":
        assert threads(home)[TASK]["thread"] == transcript(home)[0]["ts"]


def test_traces_of_a_letter_that_was_filed_are_cleared(home: Path, clock: Clock) -> None:
    services(home, "envoy", clock)
    (Places(home).own("envoy") / "intents").mkdir(parents=True)
    intent(home)
    put(home, "messages", "sent", **message())
    speak(home, clock)
    assert (traces(home), spoken(home)) == ([], [])


@pytest.mark.parametrize("broken", ["receipts", "thread-mappings.json", "sent"])
def test_an_error_after_the_post_does_not_repeat_it(home: Path, clock: Clock, broken: str) -> None:
    """Something unwritable stands in for a full disk; once it is gone the letter is filed."""
    envoy = speak(home, clock)
    path = Places(home).folder("messages", "sent") if broken == "sent" else Places(home).own("envoy") / broken
    if broken != "thread-mappings.json":
        path.rmdir()
    else:
        path.mkdir()
    start(home)
    for _ in range(3):
        with pytest.raises(OSError, match="directory"):
            rest(home, clock, envoy, turns=2)
    if broken != "thread-mappings.json":
        path.mkdir()
    else:
        path.rmdir()
    speak(home, clock, envoy)
    assert (spoken(home), here(home, "messages", "sent")) == (["msg-1"], ["msg-1"])


@pytest.mark.parametrize("place", ["sent", "failed"])
def test_a_letter_under_a_used_id_is_buried_not_said_for_ever(home: Path, clock: Clock, place: str) -> None:
    services(home, "envoy", clock)
    put(home, "messages", place, **message(content="the first"))
    put(home, "messages", "pending", **message(content="the second"))
    envoy = speak(home, clock)
    rest(home, clock, envoy, turns=3)
    assert (spoken(home), here(home, "messages", "dead"), here(home, "messages", "pending")) == ([], ["msg-1"], [])
    reason = read_json(Places(home).folder("messages", "dead") / "msg-1.json.reason")["reason"]
    assert reason == f"{place}/ has a letter of this id already"
    assert read(home, "messages", place, "msg-1")["content"] == "the first"


# --- refusals

ON_GRUMPY = {"source_ref": {"source": "grumpy"}, "channel": "C1"}


def test_three_refusals_end_in_failed_with_the_reason(home: Path, clock: Clock) -> None:
    envoy = speak(home, clock)
    grumpy.refusals[:] = ["busy", "still busy", "no such room"]
    put(home, "messages", "pending", **message(**ON_GRUMPY))
    tries = []
    for _ in range(4):
        speak(home, clock, envoy)
        tries.append((here(home, "messages", "pending"), here(home, "messages", "failed")))
        clock.pass_(20)
    assert tries == [(["msg-1"], []), (["msg-1"], []), ([], ["msg-1"]), ([], ["msg-1"])]
    filed = read(home, "messages", "failed", "msg-1")
    assert (filed["status"], filed["tries"]) == ("failed", 3)
    assert filed["refused_because"] == "grumpy did not take the message: no such room"
    assert (grumpy.said, traces(home)) == ([], [])


def test_a_refused_letter_waits_and_holds_nobody_up(home: Path, clock: Clock) -> None:
    envoy = speak(home, clock)
    grumpy.refusals[:] = ["busy"]
    put(home, "messages", "pending", **message("msg-1", urgency="urgent", **ON_GRUMPY))
    put(home, "messages", "pending", **message("msg-2", **ON_GRUMPY))
    speak(home, clock, envoy)
    assert [name for name, _, _ in grumpy.said] == ["msg-2"]
    speak(home, clock, envoy)
    assert len(grumpy.said) == 1, "not before its time"
    clock.pass_(5)
    speak(home, clock)
    assert [name for name, _, _ in grumpy.said] == ["msg-2", "msg-1"]
    assert here(home, "messages", "sent") == ["msg-1", "msg-2"]


@pytest.mark.parametrize("fields", [{"tries": "many"}, {"tries": -1}, {"not_before": "later"}, {"not_before": 5}])
def test_strange_notes_of_foreign_writers_bury_the_letter(home: Path, clock: Clock, fields: dict[str, Any]) -> None:
    services(home, "envoy", clock)
    put(home, "messages", "pending", **message("msg-1", **fields))
    put(home, "messages", "pending", **message("msg-2"))
    speak(home, clock)
    assert (here(home, "messages", "dead"), spoken(home)) == (["msg-1"], ["msg-2"])


def test_every_type_of_letter_has_its_sender() -> None:
    assert set(SENDERS) == set(load("message")["properties"]["type"]["enum"])
