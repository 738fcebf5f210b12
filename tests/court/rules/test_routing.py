"""Which general gets an event: words of people first, then the exact type, then the longest wildcard."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest

from kingdom.base.home import manifests, schemas
from kingdom.base.records.messages import Event
from kingdom.court.rules import routing
from tests.fixtures import event, founded, install

GENERALS = {
    "gen-a": {"subscribes": ["github.pr.review_requested"], "keywords": ["리뷰", "review"]},
    "gen-b": {"subscribes": ["github.pr.*", "github.pr.review_requested"], "keywords": ["deploy", "review please"]},
    "gen-c": {"subscribes": ["github.*"], "keywords": ["배포", "Straße"]},
    "gen-d": {"subscribes": ["slack.app_mention", "console.message"], "keywords": ["deploy"]},
    "gen-z": {"subscribes": ["*"]},
}


def table(home: Path, *names: str) -> routing.RoutingTable:
    places = founded(home)
    for name in names or GENERALS:
        install(home, name, **GENERALS[name])
    good, bad = manifests.installed(places)
    assert bad == []
    return routing.table(good)


def an_event(type: str, text: object = None) -> Event:
    return Event.from_json(schemas.check("event", event(type=type, payload={"text": text})))


@pytest.mark.parametrize(
    ("type", "general", "rule"),
    [
        ("github.pr.review_requested", "gen-a", "subscribes 'github.pr.review_requested'"),
        ("github.pr.comment", "gen-b", "subscribes 'github.pr.*'"),
        ("github.pr.a.b.c", "gen-b", "subscribes 'github.pr.*'"),
        ("github.pr", "gen-c", "subscribes 'github.*'"),
        ("github.issue.assigned", "gen-c", "subscribes 'github.*'"),
        ("githubs.issue", "gen-z", "subscribes '*'"),
        ("slack.app_mention", "gen-d", "subscribes 'slack.app_mention'"),
        ("anything", "gen-z", "subscribes '*'"),
    ],
)
def test_the_most_exact_claim_wins(home: Path, type: str, general: str, rule: str) -> None:
    assert table(home).route(an_event(type)) == routing.Route(general, rule)


def test_an_event_that_nobody_claims_has_no_route(home: Path) -> None:
    assert table(home, "gen-a", "gen-b").route(an_event("jira.ticket.assigned")) is None
    assert routing.table([]).route(an_event("jira.ticket.assigned")) is None


def test_the_first_by_name_keeps_a_claim_and_a_second_is_a_warning(home: Path) -> None:
    assert table(home).warnings == (
        "'github.pr.review_requested' belongs to gen-a already; gen-b does not get it",
        "'deploy' belongs to gen-b already; gen-d does not get it",
    )


@pytest.mark.parametrize(
    ("text", "general"),
    [
        ("Please Review this", "gen-a"),
        ("review please!", "gen-b"),
        ("리뷰해주세요", "gen-a"),
        ("오늘 배포합시다", "gen-c"),
        (unicodedata.normalize("NFD", "오늘 배포합시다"), "gen-c"),
        ("deploy해줘", "gen-b"),
        ("DEPLOY", "gen-b"),
        ("in der STRASSE", "gen-c"),
        ("redeployment", "gen-d"),
        ("pre_deploy", "gen-d"),
        ("hello", "gen-d"),
        ("", "gen-d"),
        (None, "gen-d"),
        (["deploy", 1], "gen-b"),
    ],
)
def test_what_people_write_is_routed_by_words_before_the_catch_all(home: Path, text: object, general: str) -> None:
    route = table(home).route(an_event("console.message", text))
    assert route is not None
    assert route.general == general


def test_words_are_for_what_people_write_alone(home: Path) -> None:
    route = table(home).route(an_event("github.issue.comment", "deploy"))
    assert route == routing.Route("gen-c", "subscribes 'github.*'")


def test_every_rule_that_was_tried_can_be_told(home: Path) -> None:
    tried = table(home, "gen-d", "gen-z").tried(an_event("console.message", "hello"))
    assert tried == [
        "word 'deploy' → gen-d",
        "subscribes 'console.message' → gen-d",
        "subscribes 'console.*' → nobody",
        "subscribes '*' → gen-z",
    ]


def test_a_generals_repo_stands_in_the_table(home: Path) -> None:
    founded(home)
    install(home, "gen-a", default_repo="acme/shop")
    assert table(home, "gen-z").repos == {"gen-a": "acme/shop", "gen-z": None}
