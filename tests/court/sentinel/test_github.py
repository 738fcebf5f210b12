"""GitHub's notifications become events once, and only those that did are marked as read."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.home.places import Places
from kingdom.court.connections.base import ServiceDown
from kingdom.court.connections.web import Deadlines, Web
from kingdom.court.sentinel.watchers.github import type_of
from kingdom.demo.standins.faults import Fault, cuts, drops, fails, hangs, limits, passes, says
from kingdom.demo.standins.github import GitHub
from kingdom.demo.standins.server import Answer, HttpRequest
from tests.court.sentinel.sentinels import SECONDS, Sentinel
from tests.fixtures import Clock

Build = Callable[..., Sentinel]


@pytest.fixture
def build(home: Path, clock: Clock, hub: GitHub) -> Build:
    """A new life of the sentinel in one home."""

    def built(more: dict[str, Any] | None = None, **others: Any) -> Sentinel:
        return Sentinel(home, clock, {"github": {"base_url": hub.address, **(more or {})}}, **others)

    return built


def asked(hub: GitHub, method: str = "GET", path: str = "/notifications") -> list[HttpRequest]:
    return [request for request in hub.requests if request.method == method and request.path.startswith(path)]


def test_a_service_that_hangs_is_not_waited_for(hub: GitHub) -> None:
    hub.once(hangs(hub))
    told = []

    def ask() -> None:
        with pytest.raises(ServiceDown) as down:
            Web("GitHub", hub.address, {}, deadlines=Deadlines(read=0.3)).get("notifications")
        told.append(str(down.value))

    asks = threading.Thread(target=ask, daemon=True)
    asks.start()
    asks.join(SECONDS)
    assert told == ["GitHub cannot be reached: it does not answer in time"]


def test_a_review_that_is_asked_for_becomes_an_event(build: Build, hub: GitHub) -> None:
    hub.described[42] = ("It was slow.", "stable")
    name = hub.notify(42)
    sentinel = build()
    assert sentinel.settle() == [f"evt-github-{name}-2026-02-07T10:00:00Z"]
    event = sentinel.one()
    assert {key: event[key] for key in ("type", "source", "repo", "priority", "status")} == {
        "type": "github.pr.review_requested",
        "source": "github",
        "repo": "acme/shop",
        "priority": "normal",
        "status": "pending",
    }
    assert event["payload"] == {
        "headline": "#42 Make it faster",
        "reason": "review_requested",
        "subject_title": "Make it faster",
        "subject_url": f"{hub.address}/repos/acme/shop/pulls/42",
        "subject_type": "PullRequest",
        "updated_at": "2026-02-07T10:00:00Z",
        "pr_number": "42",
        "issue_number": None,
        "latest_comment_url": f"{hub.address}/repos/acme/shop/pulls/42",
        "notification_thread_id": name,
        "url": "https://github.com/acme/shop/pull/42",
        "author": "dana",
        "description": "It was slow.",
        "base": "stable",
        "comments": [],
    }
    assert hub.unread() == []


def test_who_mentions_us_is_heard(build: Build, hub: GitHub) -> None:
    """A soldier has no token: what is asked of it has to stand in its task."""
    hub.described[3] = ("The price is wrong.", "main")
    hub.comment(3, "@kingdom-bot is this right?", "ann", reason="mention", kind="Issue")
    sentinel = build()
    sentinel.settle()
    payload = sentinel.one()["payload"]
    said = {"author": "ann", "text": "@kingdom-bot is this right?", "at": "2026-02-07T10:00:00Z"}
    assert payload["comments"] == [said]
    assert (payload["headline"], payload["author"]) == ("#3 Make it faster", "dana")
    assert (payload["description"], payload["url"]) == ("The price is wrong.", "https://github.com/acme/shop/issues/3")


@pytest.mark.parametrize(("reason", "kind"), [("comment", "PullRequest"), ("mention", "Discussion")])
def test_what_asks_nothing_of_us_or_has_no_number_costs_no_question(
    build: Build, hub: GitHub, reason: str, kind: str
) -> None:
    hub.notify(5, reason, kind=kind)
    sentinel = build()
    sentinel.settle()
    assert "description" not in sentinel.one()["payload"]
    assert asked(hub, path="/repos/") == []


def test_a_pull_request_that_our_token_may_not_see_makes_its_event(build: Build, hub: GitHub) -> None:
    hub.notify(42)
    hub.once(passes(), fails(404))
    sentinel = build()
    sentinel.settle()
    assert "url" not in sentinel.one()["payload"]


def test_a_look_that_fails_half_way_does_not_ask_all_of_it_again(build: Build, hub: GitHub) -> None:
    for number in (1, 2, 3):
        hub.notify(number)
    hub.once(passes(), passes(), fails(500))
    sentinel = build()
    assert sentinel.settle() == []
    assert len(sentinel.look()) == 3
    paths = [request.path for request in asked(hub, path="/repos/acme/shop/pulls/")]
    assert paths == [f"/repos/acme/shop/pulls/{number}" for number in (3, 2, 2, 1)]


@pytest.mark.parametrize(
    ("reason", "kind", "type_", "priority"),
    [
        ("review_requested", "PullRequest", "github.pr.review_requested", "normal"),
        ("mention", "PullRequest", "github.pr.mentioned", "normal"),
        ("assign", "PullRequest", "github.pr.assigned", "normal"),
        ("comment", "PullRequest", "github.pr.comment", "low"),
        ("state_change", "PullRequest", "github.pr.state_change", "low"),
        ("team_mention", "PullRequest", "github.pr.team_mention", "low"),
        ("assign", "Issue", "github.issue.assigned", "normal"),
        ("mention", "Issue", "github.issue.mentioned", "low"),
        ("comment", "Issue", "github.issue.comment", "low"),
        ("ci_activity", "CheckSuite", "github.notification.ci_activity", "low"),
    ],
)
def test_reason_and_subject_make_the_type(
    build: Build, hub: GitHub, reason: str, kind: str, type_: str, priority: str
) -> None:
    hub.notify(7, reason, kind=kind)
    sentinel = build()
    sentinel.settle()
    assert (sentinel.one()["type"], sentinel.one()["priority"]) == (type_, priority)
    assert type_of(reason, kind) == type_
    assert sentinel.one()["payload"]["pr_number"] == ("7" if kind == "PullRequest" else None)


def test_what_happens_again_to_a_thread_is_another_event(build: Build, hub: GitHub) -> None:
    hub.notify(1)
    sentinel = build()
    sentinel.settle()
    sentinel.time.pass_(60)
    hub.notify(1)
    assert len(sentinel.settle()) == 2


def test_a_look_at_what_has_not_changed_costs_nothing(build: Build, hub: GitHub) -> None:
    hub.notify(1)
    sentinel = build()
    sentinel.settle()
    sentinel.look()
    before = len(hub.requests)
    for _ in range(3):
        sentinel.look()
    assert [request.headers.get("if-none-match", "") != "" for request in hub.requests[before:]] == [True] * 3


def test_it_looks_no_oftener_than_github_asks(build: Build, hub: GitHub) -> None:
    hub.poll_interval = 180
    sentinel = build()
    sentinel.settle()
    sentinel.look(179)
    assert len(asked(hub)) == 1
    sentinel.look(1)
    assert len(asked(hub)) == 2


def test_three_hundred_at_once_become_three_hundred(build: Build, hub: GitHub) -> None:
    for number in range(300):
        hub.notify(number)
    sentinel = build()
    assert len(sentinel.settle()) == 300
    assert hub.unread() == []
    assert len(sentinel.look()) == 300
    assert len(asked(hub, "PATCH", "/notifications/threads/")) == 300


def test_the_first_look_is_bounded(build: Build, hub: GitHub, clock: Clock) -> None:
    for number in range(5):
        hub.notify(number, at=clock.now - 3600)
    hub.notify(99, at=clock.now - 60)
    sentinel = build()
    assert len(sentinel.settle()) == 1
    assert len(hub.unread()) == 5
    for _ in range(3):
        build().look()
    told = [line for line in sentinel.said().splitlines() if "make no events" in line]
    assert len(told) == 1
    assert "5 unread notifications" in told[0]


def test_after_a_change_over_only_what_is_new_makes_events(build: Build, hub: GitHub, home: Path, clock: Clock) -> None:
    hub.notify(1, at=clock.now - 3600)
    own = Places(home).own("sentinel")
    before = build()
    before.settle()
    etag = json.loads((own / "github-state.json").read_text())["etag"]
    (own / "github-state.json").write_text(json.dumps({"etag": etag}))
    after = build()
    assert after.settle() == []
    hub.notify(2)
    assert len(after.look(61)) == 1
    assert len(hub.unread()) == 1


def test_only_the_scope_makes_events_and_the_rest_stays_unread(build: Build, hub: GitHub) -> None:
    hub.notify(1, repo="acme/shop")
    hub.notify(2, repo="acme/other", reason="comment")
    hub.notify(3, repo="elsewhere/x")
    sentinel = build({"scope": {"repos": ["Acme/*"], "filter_reasons": ["review_requested"]}})
    sentinel.settle()
    assert sentinel.one()["payload"]["pr_number"] == "1"
    assert len(hub.unread()) == 2


def test_its_clock_may_differ_from_ours(build: Build, hub: GitHub) -> None:
    hub.skew = -7200.0
    hub.notify(1)
    sentinel = build()
    sentinel.settle()
    sentinel.time.pass_(60)
    hub.notify(2)
    assert len(sentinel.settle()) == 2


@pytest.mark.parametrize("fault", [drops(), cuts(), fails(500), fails(502), fails(503), says({"odd": 1})])
def test_a_service_that_fails_is_told_once_and_nothing_is_lost_or_doubled(
    build: Build, hub: GitHub, fault: Fault
) -> None:
    hub.notify(1)
    hub.once(fault, fault, fault)
    sentinel = build()
    assert sentinel.settle() == []
    assert sentinel.shows("github")["state"] == "down"
    sentinel.look(60)
    sentinel.look(120)
    assert len(sentinel.look(240)) == 1
    lines = [line for line in sentinel.said().splitlines() if " error " in line]
    assert len(lines) == 1, lines
    assert "answers again after" in sentinel.said()
    assert sentinel.shows("github")["state"] == "ok"


@pytest.mark.parametrize(("status", "seconds"), [(403, 90), (429, 700)])
def test_a_secondary_limit_is_waited_out_exactly_also_by_the_next_life(
    build: Build, hub: GitHub, status: int, seconds: int
) -> None:
    hub.notify(1)
    hub.once(limits(seconds, status))
    sentinel = build()
    sentinel.settle()
    assert sentinel.shows("github")["state"] == "limited"
    sentinel.look(seconds - 1)
    reborn = build()
    reborn.settle()
    assert len(hub.requests) == 1
    assert len(reborn.look(2)) == 1


def test_a_primary_limit_is_waited_out_by_githubs_own_clock(build: Build, hub: GitHub) -> None:
    hub.skew = 300.0
    hub.notify(1)
    hub.remaining, hub.reset_at = 0, hub.now() + 1200
    sentinel = build()
    sentinel.settle()
    sentinel.look(1199)
    assert len(hub.requests) == 1
    assert len(sentinel.look(1)) == 1


def test_a_limit_in_the_middle_of_marking_loses_and_doubles_nothing(build: Build, hub: GitHub) -> None:
    for number in range(8):
        hub.notify(number)
    hub.once(*[passes()] * 11, limits(100))
    sentinel = build()
    assert len(sentinel.settle()) == 8
    assert len(hub.unread()) == 6
    assert len(sentinel.look(101)) == 8
    assert hub.unread() == []


def test_a_token_that_is_refused_is_said_once_and_shown(build: Build, hub: GitHub) -> None:
    hub.token = "ghp_another"
    sentinel = build()
    for _ in range(5):
        sentinel.look(900)
    assert sentinel.said().count("Bad credentials") == 1
    shown = sentinel.shows("github")
    assert shown["state"] == "refused"
    assert shown["looked_at"] < shown["next_at"]


def test_what_happens_between_a_look_and_its_mark_is_not_hidden_by_it(build: Build, hub: GitHub) -> None:
    name = hub.notify(1)

    def happens_again(_: HttpRequest) -> Answer | None:
        hub.clock = lambda: sentinel.clock.now + 5
        hub.notify(1, "mention")
        return None

    hub.once(passes(), passes(), happens_again)
    sentinel = build()
    assert sentinel.settle() == [f"evt-github-{name}-2026-02-07T10:00:00Z", f"evt-github-{name}-2026-02-07T10:00:05Z"]
    assert hub.unread() == []


def test_what_somebody_has_read_makes_no_event(build: Build, hub: GitHub) -> None:
    hub.notify(1)
    hub.threads[hub.notify(2)]["unread"] = False
    sentinel = build()
    sentinel.settle()
    assert sentinel.one()["payload"]["pr_number"] == "1"


def test_a_list_that_shifts_between_two_pages_loses_nothing(build: Build, hub: GitHub) -> None:
    for number in range(120):
        hub.notify(number)

    def shifts(_: HttpRequest) -> Answer | None:
        hub.threads[hub.unread()[-1]]["unread"] = False
        return None

    hub.once(passes(), shifts)
    sentinel = build()
    sentinel.settle()
    assert len(sentinel.look()) == 120


def test_own_words_and_those_of_bots_make_no_events(build: Build, hub: GitHub) -> None:
    hub.comment(1, "done", by="kingdom-bot")
    hub.comment(2, "deployed", by="deploy[bot]", is_bot=True)
    hub.comment(3, "please look", by="dana")
    sentinel = build()
    sentinel.settle()
    assert sentinel.one()["payload"]["pr_number"] == "3"
    assert len(hub.unread()) == 2


def test_who_wrote_before_our_own_words_is_heard(build: Build, hub: GitHub) -> None:
    hub.comment(1, "please look", by="dana", reason="mention")
    hub.comment(1, "I am at it", by="kingdom-bot", reason="mention")
    sentinel = build()
    sentinel.settle()
    assert sentinel.types() == ["github.pr.mentioned"]
    assert [comment["text"] for comment in sentinel.one()["payload"]["comments"]] == ["please look"]


def test_a_review_of_a_bots_pull_request_is_work(build: Build, hub: GitHub) -> None:
    hub.notify(1, "review_requested", title="Bump left-pad (dependabot)")
    sentinel = build()
    assert len(sentinel.settle()) == 1


@pytest.mark.parametrize(
    "asks",
    [
        lambda hub: hub.notify(1, "review_requested"),
        lambda hub: hub.notify(1, "assign"),
        lambda hub: hub.review(1, "not so", by="dana"),
        lambda hub: hub.review(1, "this line?", by="dana", on_line=True),
        lambda hub: hub.comment(1, "please look", by="dana"),
    ],
    ids=["review asked", "assigned", "reviewed", "line", "comment"],
)
@pytest.mark.parametrize("was_read", [False, True], ids=["new", "read before"])
def test_what_a_person_did_before_a_bot_wrote_is_heard_once(
    build: Build, hub: GitHub, asks: Callable[[GitHub], object], was_read: bool
) -> None:
    sentinel = build()
    if was_read:
        asks(hub)
        sentinel.settle()
        sentinel.time.pass_(60)
    asks(hub)
    for number in range(120 if was_read else 1):
        reason = hub.threads["1000"]["reason"]
        hub.comment(1, f"check {number} has run", by="codecov[bot]", reason=reason, is_bot=True)
    assert len(sentinel.look(10)) == 1 + was_read
    for _ in range(2):
        hub.comment(1, "another has run", by="codecov[bot]", reason=reason, is_bot=True)
        assert len(sentinel.look(60)) == 1 + was_read


def test_a_person_who_writes_after_a_hundred_bots_is_heard(build: Build, hub: GitHub) -> None:
    for number in range(130):
        hub.comment(1, f"check {number} has run", by="codecov[bot]", is_bot=True)
    hub.comment(1, "please look", by="dana")
    hub.comment(1, "merged", by="codecov[bot]", is_bot=True)
    sentinel = build()
    assert len(sentinel.settle()) == 1


def test_a_pull_request_that_a_person_has_just_opened_is_heard_though_a_bot_wrote_first(
    build: Build, hub: GitHub, clock: Clock
) -> None:
    hub.opened[1] = ("dana", clock.now)
    hub.comment(1, "hello, new one", by="greeter[bot]", reason="mention", is_bot=True)
    assert len(build().settle()) == 1


def test_what_a_person_did_between_a_look_and_its_mark_is_not_hidden_by_a_bots_words(build: Build, hub: GitHub) -> None:
    hub.notify(1)

    def happens_again(_: HttpRequest) -> Answer | None:
        hub.clock = lambda: sentinel.clock.now + 5
        hub.comment(1, "and that?", by="dana")
        hub.comment(1, "checks have run", by="codecov[bot]", is_bot=True)
        hub.clock = lambda: sentinel.clock.now + 9
        return None

    hub.once(passes(), happens_again)
    sentinel = build()
    assert len(sentinel.settle()) == 2


def test_the_breaker_ends_a_loop_and_loses_nothing(build: Build, hub: GitHub) -> None:
    sentinel = build(breaker={"events_per_subject_hour": 3})
    for _ in range(10):
        hub.comment(1, "again", by="other-bot", reason="comment")
        sentinel.look(60)
    assert len(sentinel.events()) == 3
    assert sentinel.shows("github")["state"] == "held"
    assert sentinel.said().count("holds 1 event back") == 1
    assert len(hub.unread()) == 1
    assert len(sentinel.look(3600)) == 4
    assert sentinel.shows("github")["state"] == "ok"


def test_the_token_goes_nowhere_else(build: Build, hub: GitHub) -> None:
    with GitHub() as elsewhere:
        hub.comment(1, "look", by="dana")
        hub.threads["1000"]["subject"]["latest_comment_url"] = f"{elsewhere.address}/repos/a/b/issues/comments/1"
        sentinel = build()
        sentinel.settle()
        assert elsewhere.requests == []
    assert "names an address elsewhere" in sentinel.said()


def test_an_answer_with_odd_texts_becomes_an_event_that_can_be_read(build: Build, hub: GitHub) -> None:
    hub.notify(1, title="\ud800 왕 \x00" + "x" * 50_000)
    sentinel = build()
    sentinel.settle()
    assert "왕" in sentinel.one()["payload"]["subject_title"]
    assert "50005 characters" in sentinel.one()["payload"]["subject_title"]


@pytest.mark.parametrize("odd", [{}, [], None, {"id": "../x"}, {"id": "1", "updated_at": "yesterday"}])
def test_one_of_another_shape_is_told_and_keeps_none_back(build: Build, hub: GitHub, odd: object) -> None:
    hub.notify(1)
    hub.once(says([odd, *hub.threads.values()]))
    sentinel = build()
    assert len(sentinel.settle()) == 1
    assert sentinel.said().count("unknown format") == 1


def test_without_a_token_it_is_off_with_one_line(build: Build, hub: GitHub) -> None:
    sentinel = build(secrets={})
    for _ in range(3):
        sentinel.look()
    assert hub.requests == []
    assert sentinel.said().count("github is off: no GH_TOKEN in .env") == 1
    assert sentinel.shows("github")["state"] == "off"
