"""A model's program finds a HOME of its own with named things in it; what soldiers leave there is not for the next."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.home import manifests, schemas
from kingdom.base.home.places import Places
from kingdom.base.records import notes
from kingdom.base.records.messages import Task
from kingdom.base.records.soldiers import SoldierOrder
from kingdom.base.runtime.role import Services
from kingdom.court.soldiers import engine_homes, engines, memory, prepare
from kingdom.court.soldiers.engine_homes import EngineHome
from kingdom.court.soldiers.engines import claude, codex
from kingdom.court.soldiers.engines.base import NeedsSetUp
from kingdom.court.soldiers.handle import SoldierHandle
from tests import fixtures
from tests.fixtures import Clock, install, services, write
from tests.waiting import SOON, wait_until

GENERAL, TASK = "gen-pr", "task-20260207-001"
SECRET = "sk-0123456789abcdef"


@pytest.fixture
def owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The HOME of who owns the kingdom."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in (*claude.KEYS, *codex.KEYS):
        monkeypatch.delenv(name, raising=False)
    identity = '[user]\n\tname = "Kim \\"K\\" Lee"\n\temail = kim@example.org\n'
    (tmp_path / ".gitconfig").write_text(f"{identity}[alias]\n\tx = !evil\n")
    return tmp_path


@pytest.fixture
def ours(home: Path, owner: Path) -> Services:
    return made(home)


def made(home: Path, **runtime: Any) -> Services:
    """A general whose engine is claude, with a program that is there."""
    program = {"command": "/bin/true"}
    known: dict[str, Any] = {"claude": program, "codex": program, "opencode": program, **runtime}
    ours = services(home, GENERAL, Clock(), system={"runtime": known})
    ours.places.package(GENERAL).mkdir(parents=True, exist_ok=True)
    (ours.places.package(GENERAL) / "prompt.md").write_text("The plain prompt.\n")
    secrets = {"ANTHROPIC_API_KEY": SECRET, "OPENAI_API_KEY": SECRET, "GH_TOKEN": "ghp_granted1"}
    ours.places.env_file.write_text("".join(f"{name}={value}\n" for name, value in secrets.items()))
    ours.places.env_file.chmod(0o600)
    return replace(ours, secrets=secrets)


def ordered(
    ours: Services, engine: str = "claude", task: Mapping[str, Any] | None = None, **fields: Any
) -> SoldierOrder:
    install(ours.places.home, GENERAL, engine=engine, **fields)
    manifest = manifests.of(ours.places, GENERAL)
    wanted = Task.from_json(schemas.check("task", fixtures.task(TASK, **(task or {}))))
    chosen = prepare.choose_engine(ours, manifest)
    workspace = ours.places.workspace(GENERAL, wanted.id)
    soldier = SoldierHandle(ours.places, GENERAL, wanted.id)
    asked = notes.checkpoint_answered_by(ours.places, wanted)
    return prepare.order(ours, manifest, wanted, asked, soldier, chosen, workspace)


def own_home(ours: Services) -> EngineHome:
    return EngineHome(ours.places, GENERAL, TASK)


def test_it_holds_the_owners_name_for_git_and_nothing_else_of_its_configuration(ours: Services) -> None:
    order = ordered(ours)
    assert order.env["HOME"] == order.home == str(own_home(ours).home)
    assert order.home in order.may_write
    told = (own_home(ours).home / ".gitconfig").read_text()
    assert told == '[user]\n\tname = "Kim \\"K\\" Lee"\n\temail = "kim@example.org"\n'
    assert stat.S_IMODE(own_home(ours).home.stat().st_mode) == 0o700


def test_what_is_not_brought_in_is_not_there(home: Path, owner: Path) -> None:
    ours = made(home, bring=[])
    assert list(Path(str(ordered(ours).home)).iterdir()) == []


OWNERS, OURS, BOTS = 'Kim "K" Lee <kim@example.org>', "Kingdom <kingdom@localhost>", "Ann's Bot <bot@example.org>"
BOT = {"name": "Ann's Bot", "email": "bot@example.org"}


@pytest.mark.parametrize("engine", engines.ENGINES)
@pytest.mark.parametrize(
    ("runtime", "has_owner", "who"),
    [
        ({}, True, OWNERS),
        ({}, False, OURS),
        ({"git": BOT}, True, BOTS),
        ({"git": BOT}, False, BOTS),
        ({"git": {"name": "Ann's Bot"}}, False, "Ann's Bot <kingdom@localhost>"),
    ],
)
def test_every_engine_commits_in_somebodys_name_and_in_its_own_when_it_sets_one(
    home: Path, owner: Path, tmp_path: Path, engine: str, runtime: dict[str, Any], has_owner: bool, who: str
) -> None:
    if not has_owner:
        (owner / ".gitconfig").unlink()
    ours = made(home, **runtime)
    (ours.places.package(GENERAL) / "run").symlink_to("/bin/true")
    order = ordered(ours, engine)
    assert order.env.get("GIT_CONFIG_GLOBAL", order.env["GIT_CONFIG_SYSTEM"]) in order.may_read
    work = tmp_path / "work"
    work.mkdir()
    environment = {"PATH": os.environ["PATH"], "HOME": str(owner), **order.env}
    commit = "git commit -q --allow-empty -m work && git log -1 --format='%an <%ae>'"
    asked = f"git init -q && {commit} && git config user.name Own && git config user.email own@x && {commit}"
    said = subprocess.run(["sh", "-c", asked], cwd=work, env=environment, capture_output=True, text=True, check=True)
    assert said.stdout.splitlines() == [who, "Own <own@x>"]


@pytest.mark.parametrize(
    ("engine", "file", "signed_in", "step"),
    [
        (
            "claude",
            ".claude/.credentials.json",
            {"claudeAiOauth": {"accessToken": "a", "refreshToken": "renews"}},
            r"ANTHROPIC_API_KEY or CLAUDE_CODE_OAUTH_TOKEN \(of `claude setup-token`\) into .env, or sign in",
        ),
        (
            "codex",
            ".codex/auth.json",
            {"tokens": {"access_token": "a", "refresh_token": "renews"}},
            "OPENAI_API_KEY into .env, or sign in with `codex login`",
        ),
    ],
)
def test_what_the_owner_is_signed_in_with_is_lent_without_what_renews_it(
    home: Path, owner: Path, engine: str, file: str, signed_in: dict[str, Any], step: str
) -> None:
    ours = made(home)
    keyless = replace(ours, secrets={})
    with pytest.raises(NeedsSetUp, match=f"the engine {engine} has no key: put {step}"):
        ordered(keyless, engine)
    (owner / file).parent.mkdir()
    write(owner / file, signed_in)
    lent = Path(str(ordered(keyless, engine).home)) / file
    assert "renews" not in lent.read_text()
    assert '"a"' in lent.read_text()
    assert stat.S_IMODE(lent.stat().st_mode) == 0o600
    not_lent = made(home, bring=["git"])
    keyless = replace(not_lent, secrets={})
    with pytest.raises(NeedsSetUp):
        ordered(keyless, engine)


def test_nobody_reads_what_the_owner_is_signed_in_with(ours: Services, owner: Path) -> None:
    hidden = ordered(ours).may_not_read
    for name in (".claude.json", ".claude/.credentials.json", ".codex/auth.json", ".local/share/opencode/auth.json"):
        assert str(owner / name) in hidden
    assert str(ours.places.state) in hidden, "with the HOME of another conversation"


def test_what_a_soldier_leaves_goes_and_its_session_stays_for_an_answer(ours: Services) -> None:
    first = ordered(ours)
    own = own_home(ours)
    session = own.home / ".claude" / "projects" / "here" / "s-1.jsonl"
    session.parent.mkdir(parents=True)
    session.write_text(f"it was shown {SECRET} once\n")
    (own.home / ".claude" / "settings.json").write_text('{"hooks": "evil"}')
    (own.home / ".claude" / "projects" / "link").symlink_to(ours.places.env_file)
    (own.home / "deep" / "er").mkdir(parents=True)
    own.empty(ours.unsynced, (".claude/projects",), [SECRET])
    own.note(ours.unsynced, {"session_id": "s-1", "session_totals": {"cost_usd": 0.5}})
    left = lambda: [f"{folder}/{name}" for folder, _, names in os.walk(own.home) for name in names]  # noqa: E731
    wait_until(lambda: left() == [str(session)], SOON, "only the session is left")
    assert session.read_text() == f"it was shown {'*' * len(SECRET)} once\n"
    assert SECRET in ours.places.env_file.read_text()
    own.note(ours.unsynced, {"session_id": "s-1"})  # by a run that failed, and said nothing of what it used
    answer = {"type": "resume", "payload": {"session_id": "s-1"}, "thread_task_id": TASK}
    order = ordered(ours, task={**answer, "id": "task-20260207-002"} | {"id": TASK})
    assert (order.session_id, order.session_totals, order.home) == ("s-1", {"cost_usd": 0.5}, first.home)
    assert session.exists()
    ordered(ours)
    assert not session.exists(), "a new try begins a new session"


def test_a_link_in_place_of_a_folder_leads_nowhere(ours: Services) -> None:
    ordered(ours)
    own = own_home(ours)
    target = ours.places.config
    for name in (".claude", ".gitconfig", "x"):
        path = own.home / name
        path.unlink(missing_ok=True)
        path.symlink_to(target)
    before = sorted(os.listdir(target))
    own.empty(ours.unsynced, (".claude/projects",), ())
    assert list(own.home.iterdir()) == []
    ordered(ours, cc_plugins=["x"])
    assert sorted(os.listdir(target)) == before


def test_an_answer_from_elsewhere_finds_the_home_that_knows_its_session(ours: Services) -> None:
    ordered(ours)
    own_home(ours).note(ours.unsynced, {"session_id": "s-1"})
    order = ordered(ours, task={"type": "resume", "payload": {"session_id": "s-1"}, "thread_task_id": "task-9"})
    assert (order.home, order.session_id) == (str(own_home(ours).home), "s-1")
    order = ordered(ours, task={"type": "resume", "payload": {"session_id": "s-2"}, "thread_task_id": "task-9"})
    assert (order.home, order.session_id) == (str(EngineHome(ours.places, GENERAL, "task-9").home), None)


def test_the_homes_of_old_conversations_go_but_for_those_with_an_open_question(ours: Services) -> None:
    ordered(ours)
    asks = EngineHome(ours.places, GENERAL, "task-20260207-009")
    engine_homes.make(asks)
    write(ours.places.checkpoint("task-20260207-009"), {"question": "?"})
    new = EngineHome(ours.places, GENERAL, "task-20260207-010")
    engine_homes.make(new)
    week_ago = time.time() - engine_homes.KEPT_DAYS * 86400 - 60
    for home in (own_home(ours), asks):
        os.utime(home.folder, (week_ago, week_ago))
    engine_homes.remove_old(ours.places, ours.unsynced, GENERAL)
    assert [home.folder.is_dir() for home in (own_home(ours), asks, new)] == [False, True, True]


def test_instructions_lie_above_the_workspaces_and_its_soldiers_may_read_them(ours: Services) -> None:
    places = ours.places
    (places.config / "workspace-claude.md").write_text("For all.\n")
    package = places.package(GENERAL)
    (package / "general-claude.md").write_text("For reviewers.\n")
    order = ordered(ours)
    general = places.workspace(GENERAL, TASK).parent
    laid = {
        path.relative_to(places.workspaces).as_posix(): path.read_text() for path in places.workspaces.rglob("*.md")
    }
    assert laid == {
        "CLAUDE.md": "For all.\n",
        "AGENTS.md": "For all.\n",
        "gen-pr/CLAUDE.md": "For reviewers.\n",
        "gen-pr/AGENTS.md": "For reviewers.\n",
    }
    assert {path for path in order.may_read if path.startswith(str(places.workspaces))} == {
        str(path) for path in places.workspaces.rglob("*.md")
    }
    (package / "general-codex.md").write_text("For codex.\n")
    codex = ordered(ours, "codex")
    assert (general / "AGENTS.md").read_text() == "For codex.\n"
    assert (Path(str(codex.home)) / ".codex" / "AGENTS.md").read_text() == "For all.\n\nFor codex.\n"


@pytest.mark.parametrize("installed", [False, True])
def test_agents_and_skills_of_a_package_are_laid_into_its_home(ours: Services, installed: bool) -> None:
    places = ours.places
    root = places.extras("skills") / GENERAL if installed else places.package(GENERAL) / "skills"
    (root / "claude" / "look").mkdir(parents=True)
    (root / "claude" / "look" / "SKILL.md").write_text("Look.")
    (root / "SKILL.md").write_text("for no engine")
    home = Path(str(ordered(ours).home))
    assert [path.relative_to(home).as_posix() for path in home.rglob("*.md")] == [".claude/skills/look/SKILL.md"]


def test_memory_lies_beside_the_workspace_and_what_is_added_to_it_is_learned(ours: Services) -> None:
    places = ours.places
    memory.learn(ours.unsynced, places, GENERAL, None, ["tabs are four wide"], 5120)
    (places.memory / "shared" / "all.md").write_text("be kind\n")
    order = ordered(ours)
    seen = places.workspace(GENERAL, TASK) / ".." / ".." / "memory"
    places.workspace(GENERAL, TASK).mkdir(parents=True, exist_ok=True)
    assert (seen / "shared" / "all.md").read_text() == "be kind\n"
    lent = seen / "generals" / GENERAL
    assert (lent / "learned-patterns.md").read_text() == "- tabs are four wide\n"
    assert str(places.lent_memory(GENERAL)) in order.may_write
    with open(lent / "learned-patterns.md", "a") as file:
        file.write("- tabs are four wide\n- run it twice\n" + "x" * 9000 + "\n")
    (lent / "evil.md").symlink_to(places.env_file)
    (lent / "..hidden.md").write_text("no")
    memory.collect(ours.unsynced, places, GENERAL, 5120)
    known = (places.general_memory(GENERAL) / "learned-patterns.md").read_text().splitlines()
    assert known[:2] == ["- tabs are four wide", "- run it twice"]
    assert len(known[2]) <= 1025
    assert sorted(path.name for path in places.general_memory(GENERAL).iterdir()) == ["learned-patterns.md"]


def test_templates_of_other_kingdoms_are_used_where_a_package_has_none(ours: Services) -> None:
    (ours.places.package(GENERAL) / "prompt.md").unlink()
    templates = ours.places.extras("templates")
    templates.mkdir()
    for name in ("gen-pr.md", "gen-pr-claude.md", "gen-pr-review_requested.md"):
        (templates / name).write_text(f"Of {name}.\n")
    assert Path(ordered(ours).prompt).read_text().startswith("Of gen-pr-review_requested.md.")
    (templates / "gen-pr-review_requested-claude.md").write_text("The most special.\n")
    assert Path(ordered(ours).prompt).read_text().startswith("The most special.")


def test_a_model_is_told_how_to_report(ours: Services) -> None:
    order = ordered(ours)
    told = Path(order.prompt).read_text()
    assert "## How to report" in told
    assert f"to the file {order.result_path} (also in `$KINGDOM_RESULT_PATH`)" in told


def test_a_grant_gives_an_unmodified_package_its_secret(home: Path, owner: Path) -> None:
    for granted in ({}, {GENERAL: ["GH_TOKEN"]}):
        (Places(home).config).mkdir(parents=True, exist_ok=True)
        (Places(home).config / "general.yaml").write_text(json.dumps({"grants": granted}))
        ours = made(home)
        install(home, GENERAL, engine="claude")
        manifest = manifests.of(ours.places, GENERAL)
        engine = prepare.choose_engine(ours, manifest).engine
        found = prepare.environment(ours, manifest, SoldierHandle(ours.places, GENERAL, TASK), engine)
        assert found.get("GH_TOKEN") == ("ghp_granted1" if granted else None)
        assert found["KINGDOM_BASE_DIR"] == str(home)


def test_what_earlier_tries_have_spent_is_taken_off_the_budget(ours: Services) -> None:
    assert ordered(ours, limits={"budget_usd": 2.0}, task={"spent_usd": 0.5}).limits["budget_usd"] == 1.5
    assert ordered(ours, limits={"budget_usd": 2.0}, task={"spent_usd": 5}).limits["budget_usd"] == 0
    assert ordered(ours, task={"spent_usd": "much"}).limits["budget_usd"] is None


def test_the_binary_is_started_and_not_the_script_around_it(home: Path, owner: Path, tmp_path: Path) -> None:
    script = tmp_path / "lib" / "node_modules" / "@anthropic-ai" / "claude-code" / "bin" / "claude.exe"
    native = script.parents[2] / "claude-code-linux-x64" / "claude"
    for path in (script, native):
        path.parent.mkdir(parents=True)
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
    link = tmp_path / "claude"
    link.symlink_to(script)
    ours = made(home, claude={"command": str(link)})
    assert ordered(ours).program == str(native)
    native.unlink()
    assert ordered(ours).program == str(link)


@pytest.mark.parametrize("what", ["a link", "a file"])
def test_what_lies_in_place_of_a_home_goes_and_what_it_leads_to_stays(ours: Services, what: str) -> None:
    own, elsewhere = own_home(ours), ours.places.config
    own.folder.mkdir(parents=True)
    if what == "a link":
        own.home.symlink_to(elsewhere)
    else:
        own.home.write_text("x")
    before = sorted(os.listdir(elsewhere))
    own.empty(ours.unsynced, (".claude/projects",), ())
    assert not os.path.lexists(own.home)
    assert sorted(os.listdir(elsewhere)) == before


def test_a_session_of_more_than_64_mb_is_not_kept(ours: Services) -> None:
    ordered(ours)
    sessions = own_home(ours).home / ".claude" / "projects"
    sessions.mkdir(parents=True)
    for name, size in (("long", 64 << 20), ("too long", (64 << 20) + 1)):
        (sessions / name).touch()
        os.truncate(sessions / name, size)
    own_home(ours).empty(ours.unsynced, (".claude/projects",), ())
    assert os.listdir(sessions) == ["long"]


@pytest.mark.parametrize("mcp", [True, False])
def test_a_model_has_the_tools_to_report_where_the_configuration_wants_them(home: Path, owner: Path, mcp: bool) -> None:
    assert list(ordered(made(home, mcp=mcp)).mcp) == (["kingdom"] if mcp else [])


def test_plugins_that_the_owner_has_not_enabled_are_named_in_a_warning(ours: Services, owner: Path) -> None:
    (owner / "friday").mkdir()
    (owner / ".claude" / "plugins").mkdir(parents=True)
    write(owner / ".claude/settings.json", {"enabledPlugins": {"friday@m": True}})
    rows = {"friday@m": {"installPath": str(owner / "friday")}}
    write(owner / ".claude/plugins/installed_plugins.json", {"plugins": rows})
    said = []
    for wanted in (["friday"], ["friday", "monday", "sunday"]):
        install(ours.places.home, GENERAL, engine="claude", cc_plugins=wanted)
        said.append(engines.load("claude").warnings(ours, manifests.of(ours.places, GENERAL)))
    why = "cc_plugins: monday, sunday is not among the plug-ins that are enabled for the kingdom's owner"
    assert said == [[], [why]]
