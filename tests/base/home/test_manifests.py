"""Manifests: the seed's three load word for word; a broken one is told and leaves the others alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kingdom.base.disk.atomic import Disk
from kingdom.base.errors import BadConfig, NoSuchThing
from kingdom.base.home import manifests
from tests.fixtures import founded, install

SEEDS = {
    "gen-pr": """\
# generals/gen-pr/manifest.yaml
name: gen-pr
description: "PR 리뷰 전문 장군"
timeout_seconds: 1800       # 30분 — 리뷰는 읽기 + 코멘트 위주

cc_plugins:
  - friday

subscribes:
  - github.pr.review_requested
  - github.pr.mentioned
  - github.pr.assigned

schedules: []
""",
    "gen-jira": """\
name: gen-jira
description: "Jira 티켓 구현 장군"
timeout_seconds: 5400

cc_plugins:
  - sunday

subscribes:
  - jira.ticket.assigned
  - jira.ticket.updated

schedules: []
""",
    "gen-test": """\
name: gen-test
description: "테스트 코드 작성 장군"
timeout_seconds: 3600

cc_plugins:
  - saturday

subscribes: []    # 외부 이벤트 구독 없음

schedules:
  - name: daily-test
    cron: "0 22 * * 1-5"
    task_type: "daily-test-generation"
    payload:
      description: "Weekday 22:00 test generation"
""",
}


def test_the_seeds_manifests_load_word_for_word(home: Path) -> None:
    places = founded(home)
    for name, text in SEEDS.items():
        places.manifest(name).write_text(text)
    (jira, pr, test), bad = manifests.installed(places)
    assert bad == []
    assert (pr.description, pr.timeout_seconds, pr.cc_plugins) == ("PR 리뷰 전문 장군", 1800, ("friday",))
    assert pr.subscribes == ("github.pr.review_requested", "github.pr.mentioned", "github.pr.assigned")
    assert jira.schedules == ()
    (daily,) = test.schedules
    assert (daily.cron, daily.task_type) == ("0 22 * * 1-5", "daily-test-generation")
    assert dict(daily.payload) == {"description": "Weekday 22:00 test generation"}
    assert (daily.catch_up, daily.timezone, daily.repo) == ("latest", None, None)


def test_what_a_manifest_leaves_out_has_a_default(home: Path) -> None:
    founded(home)
    install(home, "gen-a")
    plain = manifests.of(founded(home), "gen-a")
    assert (plain.engine, plain.keywords, plain.max_soldiers, plain.env, plain.sandbox) == (None, (), None, (), True)
    assert plain.limits["memory_mb"] > 0


@pytest.mark.parametrize(
    ("word", "on"), [("on", True), ("off", False), ("'on'", True), ("'off'", False), ("no", False)]
)
def test_a_sandbox_is_on_or_off_as_yaml_reads_it(home: Path, word: str, on: bool) -> None:
    text = f"name: gen-a\ndescription: x\ntimeout_seconds: 30\nsandbox: {word}\n"
    places = founded(home)
    places.manifest("gen-a").write_text(text)
    assert manifests.of(places, "gen-a").sandbox is on


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "a foreign name": ({"name": "gen-b"}, r"gen-a\.yaml: name: says 'gen-b'"),
    "a name that is none": (
        {"name": "Gen A"},
        r"gen-a\.yaml:\d+: name: must be the name of a general: .*'Gen A'",
    ),
    "a line break": ({"name": "gen-a\n"}, r"gen-a\.yaml"),
    "too little time": ({"timeout_seconds": 29}, r"gen-a\.yaml:\d+: timeout_seconds: 29 is less"),
    "an unknown field": ({"subscribe": ["a"]}, r"gen-a\.yaml:\d+: subscribe: unknown key 'subscribe'"),
    "a claim that is none": ({"subscribes": ["github.*.pr"]}, r"gen-a\.yaml:\d+: subscribes\.0: "),
    "a schedule without a time": (
        {"schedules": [{"name": "d", "task_type": "t"}]},
        r"gen-a\.yaml:\d+: schedules\.0: 'cron'",
    ),
    "a variable that is none": ({"env": ["A B"]}, r"gen-a\.yaml:\d+: env\.0: "),
    "a limit that is none": ({"limits": {"memory": 1}}, r"gen-a\.yaml:\d+: limits\.memory: unknown key"),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_a_broken_manifest_is_told_with_its_line_and_the_others_serve(home: Path, what: str) -> None:
    fields, told = MISTAKES[what]
    places = founded(home)
    install(home, "gen-a", **fields)
    install(home, "gen-z")
    good, (bad,) = manifests.installed(places)
    assert [manifest.name for manifest in good] == ["gen-z"]
    with pytest.raises(BadConfig, match=told):
        raise bad


def test_a_manifest_without_a_name_is_told(home: Path) -> None:
    places = founded(home)
    places.manifest("gen-a").write_text("description: x\ntimeout_seconds: 30\n")
    with pytest.raises(BadConfig, match=r"gen-a\.yaml:1: top level: 'name' is a required"):
        manifests.of(places, "gen-a")


@pytest.mark.parametrize("name", [".gen-draft.yaml", "gen-b.yaml.tmp", "notes.txt", ".swp"])
def test_drafts_and_notes_are_no_manifests(home: Path, name: str) -> None:
    places = founded(home)
    (places.manifests / name).write_text("half a mani")
    assert manifests.installed(places) == ([], [])


def test_names_are_known_even_of_broken_manifests(home: Path) -> None:
    places = founded(home)
    install(home, "gen-b")
    places.manifest("gen-a").write_text("{")
    assert places.installed_generals() == ["gen-a", "gen-b"]
    with pytest.raises(NoSuchThing, match="no general named 'gen-c'; it is not installed"):
        manifests.of(places, "gen-c")


def test_the_version_changes_with_every_change(home: Path) -> None:
    places = founded(home)
    seen = [manifests.versions(places)]
    install(home, "gen-a")
    seen.append(manifests.versions(places))
    install(home, "gen-a", timeout_seconds=90)
    seen.append(manifests.versions(places))
    places.manifest("gen-a").unlink()
    assert len(set(map(str, seen))) == 3
    assert manifests.versions(places) == seen[0]


FOREIGN = """\
name: gen-pr
description: reviews
timeout_seconds: 1800
mode: oneshot
harness: {name: friday}
retry:
subscribes: []
keywords:
schedules:
limits:
cc_plugins: []
default_repo: ""
engine: ""
max_soldiers:
"""


def test_an_existing_package_loads_and_what_has_no_effect_is_named(home: Path) -> None:
    path = founded(home).manifest("gen-pr")
    path.write_text(FOREIGN)
    manifest = manifests.read(path)
    assert (manifest.subscribes, manifest.keywords, manifest.schedules, manifest.cc_plugins) == ((), (), (), ())
    assert (manifest.default_repo, manifest.engine, manifest.max_soldiers) == (None, None, None)
    assert manifest.limits["memory_mb"] == 2048
    assert list(manifest.warnings) == [
        f"{path}:{line}: {key} has no effect here" for line, key in ((4, "mode"), (5, "harness"), (6, "retry"))
    ]


def test_a_foreign_schedule_may_name_nothing(home: Path) -> None:
    path = founded(home).manifest("gen-pr")
    schedule = '[{name: daily, cron: "0 22 * * *", task_type: daily, payload: , repo: "", timezone: }]'
    path.write_text(f"name: gen-pr\ndescription: d\ntimeout_seconds: 60\nschedules: {schedule}\n")
    (daily,) = manifests.read(path).schedules
    assert (dict(daily.payload), daily.repo, daily.timezone) == ({}, None, None)


@pytest.mark.parametrize(
    ("fields", "needs"),
    [
        ({"engine": "command"}, False),
        ({"engine": "claude"}, True),
        ({"engine": None}, True),
        ({"engine": "command", "needs_model": True}, True),
        ({"engine": "claude", "needs_model": False}, False),
    ],
)
def test_a_model_is_needed_where_no_program_does_the_work(home: Path, fields: dict[str, Any], needs: bool) -> None:
    places = founded(home)
    install(home, "gen-pr", **fields)
    assert manifests.of(places, "gen-pr").needs_model is needs


def test_a_manifest_is_in_use_until_it_changes(home: Path, tmp_path: Path) -> None:
    places = founded(home)
    install(home, "gen-pr")
    path = places.manifest("gen-pr")
    assert not manifests.is_in_use(places, "king", "gen-pr")
    places.own("king").mkdir(parents=True, exist_ok=True)
    disk = Disk(tmp_path, durability="process")
    manifests.note_in_use(places, disk, "king", manifests.versions(places))
    assert manifests.is_in_use(places, "king", "gen-pr")
    path.write_text(f"{path.read_text()}\n# changed\n")
    assert not manifests.is_in_use(places, "king", "gen-pr")
    path.unlink()
    assert not manifests.is_in_use(places, "king", "gen-pr")
    manifests.note_in_use(places, disk, "king", manifests.versions(places))
    assert manifests.is_in_use(places, "king", "gen-pr"), "it is known that it is gone"


@pytest.mark.parametrize(
    ("first", "misfit"),
    [
        ("#!/bin/sh\n", None),
        ("#!/no/such/shell -e\n", "run:1 begins with `#!/no/such/shell`, and there is no /no/such/shell here"),
        ("#!python3 -I\n", None),
        ("#!/bin/sh\r\n", "run:1 ends as on Windows (CR LF), so its interpreter /bin/sh is not found"),
        ("#!\n", None),
        ("/no/such/shell\n", None),
        ("", None),
    ],
)
def test_a_program_that_could_not_be_started_is_seen_by_its_first_line(
    tmp_path: Path, first: str, misfit: str | None
) -> None:
    program = tmp_path / "run"
    program.write_bytes(f"{first}echo hello\n".encode())
    found = manifests.program_misfit(program)
    assert found == (None if misfit is None else f"{tmp_path}/{misfit}")


def test_a_manifest_under_a_name_that_is_none_is_an_error_of_its_own(home: Path) -> None:
    places = founded(home)
    install(home, "gen-a")
    (places.manifests / "gen-B b.yaml").write_text("name: gen-B b\n")
    good, (bad,) = manifests.installed(places)
    assert [manifest.name for manifest in good] == ["gen-a"]
    assert str(bad) == f"{places.manifests}/gen-B b.yaml: the file: its name cannot be a general's"
