"""The reports: each due one once, what needs a person first."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.disk.codec import read_json
from kingdom.base.words import one_line
from kingdom.court import picture
from kingdom.court.chamberlain.reports import Reports
from kingdom.court.picture import RoleView
from tests.fixtures import Clock, all_of, here, services, write


class Evenings:
    """A home in Seoul (UTC+9), whose report is due at 09:00 UTC, and lives of the chamberlain that write it."""

    def __init__(self, home: Path, at: str) -> None:
        self.clock = Clock(at)
        self.services = services(home, "chamberlain", self.clock, system={"timezone": "Asia/Seoul"})
        self.days: dict[str, Any] = {}
        self.ids = iter(range(1, 100))
        self.view = picture.take(self.services.places, [], self.clock(), 120)

    def counts(self, day: str, general: str, **types: int) -> None:
        self.days[day] = {
            "types": {},
            "generals": {general: {f"task.{name}": number for name, number in types.items()}},
        }

    def look(self) -> None:
        view = self.view._replace(taken_at=self.clock())
        next_id = lambda: f"msg-20260207-chamberlain-{next(self.ids):03}"  # noqa: E731
        Reports(self.services).send(view, self.days, lambda day: 1.5, next_id)

    def sent(self) -> list[str]:
        messages = all_of(self.services.places.home, "messages", "pending")
        assert {message["type"] for message in messages} <= {"report"}
        return [message["content"] for message in messages]


def test_a_report_is_sent_once_a_day_at_its_hour_and_tells_what_came_after_the_last(home: Path) -> None:
    ours = Evenings(home, "2026-02-03T08:00:00Z")  # a Tuesday, 17:00
    ours.counts("2026-02-03", "gen-pr", completed=2)
    ours.look()
    assert ours.sent() == []
    ours.clock.pass_(2 * 3600)
    ours.counts("2026-02-03", "gen-pr", completed=5, failed=1)
    for _ in range(3):
        ours.look()
    (first,) = ours.sent()
    assert "[daily report] Nothing needs you." in first
    assert "- gen-pr: tasks 3 done, 1 failed" in first.splitlines()
    assert "Since the last one: tasks 3 done, 1 failed. Spent: 1.50 USD." in first.splitlines()
    assert "Spent: 1.50 USD." in first
    ours.clock.pass_(24 * 3600)
    ours.counts("2026-02-04", "gen-pr", completed=4)
    ours.days["2026-02-04"]["generals"]["gen-idle"] = {"task.created": 1}
    ours.look()
    assert "- gen-pr: tasks 4 done" in ours.sent()[1]
    assert "gen-idle" not in ours.sent()[1]


def test_kept_work_is_counted_and_what_goes_soon(home: Path) -> None:
    ours = Evenings(home, "2026-02-03T08:00:00Z")
    ours.look()
    for number, days in ((1, 1), (2, 22), (3, 24)):
        folder = ours.services.places.workspace("gen-pr", f"task-20260101-00{number}")
        folder.mkdir(parents=True)
        ended = ours.clock() - days * 86400
        os.utime(folder, (ended, ended))
    ours.clock.pass_(2 * 3600)
    ours.look()
    (told,) = ours.sent()
    said = "Work of ended tasks is kept in 3 workspaces, 1 of them for less than 7 more days: `kingdom tasks work`."
    assert said in told.splitlines()


def test_the_week_is_told_on_friday(home: Path) -> None:
    ours = Evenings(home, "2026-02-03T08:00:00Z")
    for _ in range(10):
        ours.look()
        ours.clock.pass_(86400)
    ours.clock.pass_(86400)  # it does not run on the evening of the second Friday
    ours.look()
    kinds = [text.partition("]")[0] for text in ours.sent()]
    assert (kinds.count("[daily report"), kinds.count("[weekly report")) == (10, 2)


def test_a_report_that_is_noted_and_not_sent_is_sent_by_the_next_life_under_its_id(home: Path) -> None:
    ours = Evenings(home, "2026-02-03T10:00:00Z")
    ours.look()
    ours.clock.pass_(86400)
    book = ours.services.places.own("chamberlain") / "reports.json"
    letter = {"of": "daily 2026-02-04", "id": "msg-20260204-chamberlain-077", "text": "as it was"}
    write(book, {**read_json(book), "letter": letter})
    for _ in range(2):
        ours.look()
    assert ours.sent() == ["as it was"]


def test_a_report_that_could_not_be_sent_keeps_its_id_and_its_words(home: Path) -> None:
    ours = Evenings(home, "2026-02-03T10:00:00Z")
    ours.look()
    ours.clock.pass_(86400)
    pending = ours.services.places.folder("messages", "pending")
    pending.rename(home / "aside")
    with pytest.raises(OSError, match="pending"):
        ours.look()
    (home / "aside").rename(pending)
    ours.counts("2026-02-04", "gen-pr", completed=4)
    ours.look()
    assert here(home, "messages", "pending") == ["msg-20260207-chamberlain-001"]
    assert "no task ended" in ours.sent()[0]


def test_what_a_full_disk_did_not_take_is_saved_at_the_next_look(home: Path) -> None:
    ours = Evenings(home, "2026-02-03T08:00:00Z")
    reports = Reports(ours.services)
    view = ours.view._replace(taken_at=ours.clock())
    send = lambda: reports.send(view, {}, lambda day: 0.0, lambda: "msg-20260207-chamberlain-001")  # noqa: E731
    send()
    book = ours.services.places.own("chamberlain") / "reports.json"
    ours.clock.pass_(86400)
    pending = ours.services.places.folder("messages", "pending")
    scratch = ours.services.places.scratch("chamberlain")
    shutil.rmtree(scratch)
    scratch.write_text("no folder: nothing can be written")
    with pytest.raises(NotADirectoryError):
        send()
    scratch.unlink()
    scratch.mkdir()
    pending.rename(home / "aside")
    with pytest.raises(OSError, match="pending"):
        send()
    (home / "aside").rename(pending)
    assert read_json(book)["letter"]["of"] == "daily 2026-02-03"


def test_of_many_failures_five_are_named_and_of_many_questions_the_number(home: Path) -> None:
    ours = Evenings(home, "2026-02-03T10:00:00Z")
    ours.look()
    ours.clock.pass_(86400)
    at = ours.clock()
    failures = [{"what": f"task-{number}", "why": "no token", "at": at - 86400} for number in range(6)]
    old = {"what": "task-9", "why": "no token", "at": at - 86401}
    queues = {**ours.view.queues, "events": {**ours.view.queues["events"], "pending": 1}}
    next_run = {"schedule": "briefing", "next": "2026-02-05T00:00:00Z"}
    ours.view = ours.view._replace(
        questions=("task-1",), failures=(old, *failures), queues=queues, next_run=next_run, dead=2
    )
    ours.look()
    named = [line for line in ours.sent()[0].splitlines() if line.startswith("- ")]
    assert named == [
        "- 1 more question: `kingdom tasks --asking`",
        *(f"- task-{number} failed: no token" for number in range(5)),
        "- 2 files in dead/: `kingdom queue ls` shows where",
    ]
    assert ours.sent()[0].splitlines()[-2:] == [
        "1 event or task wait.",
        "Next: briefing at 2026-02-05T00:00:00Z.",
    ]


def test_what_needs_a_person_stands_first(home: Path) -> None:
    ours = Evenings(home, "2026-02-03T10:00:00Z")
    ours.look()
    ours.clock.pass_(86400)
    question = "which branch?" + "x" * 300
    asks = {"id": "task-1", "target_general": "gen-pr", "question": question, "seconds": 7200.0}
    failed = {"what": "task-2", "why": "no token", "at": ours.clock()}
    ours.view = ours.view._replace(
        asking=(asks,),
        questions=("task-1",),
        failures=(failed,),
        roles=(RoleView("envoy", "quarantined", None, None),),
    )
    ours.look()
    lines = ours.sent()[0].splitlines()
    assert lines[:4] == [
        "[daily report] What needs you:",
        f"- task-1 has asked for 2 h: {one_line(question, 200)} (`kingdom why task-1`)",
        "- envoy does not run (quarantined): `kingdom logs envoy`",
        "- task-2 failed: no token",
    ]
