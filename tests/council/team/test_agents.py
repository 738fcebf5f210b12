"""Each agent of the team: told twice it does nothing twice, and of nonsense it makes no more nonsense."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kingdom import team as team_program
from kingdom.council import mime
from kingdom.council.bodies import faults_of_body
from kingdom.council.team import goals
from tests.council.team.teams import repository
from tests.fixtures import founded

THREAD = "task-20260207-001"


class Agent:
    """One agent of the team in a home, told of messages without a council."""

    def __init__(self, home: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home, self.name = home, name
        self._number = 0
        monkeypatch.setenv("KINGDOM_HOME", str(home))
        monkeypatch.setenv("KINGDOM_AGENT", name)
        monkeypatch.setenv("KINGDOM_WORKSPACE", str(home / "workspace" / "council" / name))
        for number in (1, 2, 3):
            (self.queue / f"ignitian_{number}").mkdir(parents=True, exist_ok=True)

    @property
    def queue(self) -> Path:
        return self.home / "workspace" / "queue"

    def message(self, kind: str, text: str, sender: str = "leader") -> Path:
        self._number += 1
        path = self.queue / self.name / "processed" / f"{kind}_{1_770_000_000_000_000 + self._number}.mime"
        path.parent.mkdir(parents=True, exist_ok=True)
        raw = mime.build_message(
            from_agent=sender, to_agents=self.name, msg_type=kind, thread_id=THREAD, repo="acme/shop", body=text
        )
        path.write_text(raw)
        return path

    def told(self, *paths: Path) -> int:
        return team_program.main([str(path) for path in paths])

    def sent(self) -> dict[str, bytes]:
        """Return what it has sent, by addressee and name."""
        files = sorted(self.queue.rglob("*.mime"))
        return {str(path.relative_to(self.queue)): path.read_bytes() for path in files if self.name not in path.parts}


def work(home: Path, part: str = "layout") -> dict[str, Any]:
    shop = repository(home / "shop")
    (task,) = [
        one for one in goals.tasks_of("outline", goals.Repository(str(shop)), str(shop)) if one["work"]["part"] == part
    ]
    return task


def given(home: Path) -> dict[str, tuple[str, str, str]]:
    """Return by agent a message for it: type, sender, body."""
    from kingdom.council.bodies import yaml_of

    task = work(home)
    file = home / "done.md"
    file.write_text("## What lies where\n\nnothing\n")
    delivered = [{"file": "part-2.md", "location": str(file)}]
    issue = [{"issue": "x", "suggested_fix": "y"}]
    about = {"task_id": "task_002", "title": "What lies where", "work": task["work"]}
    goal = {"goal": "a README", "workspace": str(home / "shop")}
    bodies: dict[str, tuple[str, str, dict[str, Any]]] = {
        "leader": ("user_goal", "user", goal),
        "strategist": ("strategy_request", "leader", goal),
        "architect": ("design_review_request", "strategist", {**goal, "proposed_strategy": "x", "tasks": [task]}),
        "coordinator": ("task_list", "strategist", {"goal": "x", "tasks": [task]}),
        "ignitian_2": ("task_assignment", "coordinator", task),
        "evaluator": ("evaluation_request", "coordinator", {**about, "deliverables": delivered}),
        "innovator": ("improvement_request", "evaluator", {**about, "target": str(file), "issues": issue}),
    }
    return {name: (kind, sender, yaml_of(what)) for name, (kind, sender, what) in bodies.items()}


AGENTS = ("leader", "strategist", "architect", "coordinator", "ignitian_2", "evaluator", "innovator")


@pytest.mark.parametrize("name", AGENTS)
def test_told_twice_it_has_sent_the_same_files(name: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent(home, name, monkeypatch)
    kind, sender, text = given(home)[name]
    path = agent.message(kind, text, sender)
    raw = path.read_bytes()
    assert agent.told(path) == 0
    sent = agent.sent()
    assert sent
    assert not path.exists()
    for message in sent.values():
        head = mime.parse_message(message.decode())
        assert mime.faults(message, faults_of_body) == []
        assert mime.warnings(message) == []
        assert (head["from"], head["thread_id"]) == (name, THREAD)
    path.write_bytes(raw)
    assert agent.told(path) == 0
    assert (agent.sent(), path.exists()) == (sent, False)


@pytest.mark.parametrize("name", AGENTS)
def test_killed_before_it_remembers_it_sends_the_same_messages_again(
    name: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = Agent(home, name, monkeypatch)
    kind, sender, text = given(home)[name]
    path = agent.message(kind, text, sender)
    raw = path.read_bytes()
    agent.told(path)
    sent = agent.sent()
    (home / "workspace" / "council" / name / "memory.db").unlink()
    path.write_bytes(raw)
    agent.told(path)
    assert agent.sent() == sent


@pytest.mark.parametrize(
    ("name", "kind", "text"),
    [
        ("leader", "progress_update", "summary: [x]"),
        ("leader", "escalation", "{dlq_path: x}"),
        ("leader", "escalation", "{nothing: said}"),
        ("leader", "poem", "lines: 3"),
        ("strategist", "insight_response", "insights: [a]"),
        ("coordinator", "task_completed", "{task_id: task_009, status: success}"),
        ("coordinator", "evaluation_result", "{task_id: task_009, overall_status: pass}"),
        ("coordinator", "evaluation_result", "{task_id: task_009, overall_status: maybe}"),
        ("coordinator", "revision_request", "{task_id: task_009}"),
    ],
)
def test_what_fits_nothing_is_done_with(
    name: str, kind: str, text: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = Agent(home, name, monkeypatch)
    path = agent.message(kind, text)
    assert agent.told(path) == 0
    assert (agent.sent(), path.exists()) == ({}, False)


@pytest.mark.parametrize(
    ("name", "kind", "text", "why"),
    [
        ("leader", "user_goal", "goal: [x]", "user_goal from leader: its body says no goal"),
        ("coordinator", "task_list", "tasks: soon", "its tasks are no list of tasks"),
        ("coordinator", "task_completed", "status: success", "its body says no task_id"),
        ("evaluator", "evaluation_request", "{task_id: x}", "its body says no title"),
        ("architect", "design_review_request", "just words", "it is no YAML mapping"),
    ],
)
def test_what_cannot_be_understood_is_left_with_the_reason(
    name: str, kind: str, text: str, why: str, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    agent = Agent(home, name, monkeypatch)
    path = agent.message(kind, text)
    assert agent.told(path) == 1
    assert why in capsys.readouterr().out
    assert (agent.sent(), path.exists()) == ({}, True)


def test_what_cannot_be_understood_holds_up_no_other(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent(home, "leader", monkeypatch)
    bad, good = agent.message("user_goal", "goal: [x]"), agent.message("user_goal", "goal: a README")
    assert agent.told(bad, good) == 1
    assert (bad.exists(), good.exists()) == (True, False)
    assert any(name.startswith("strategist/strategy_request_") for name in agent.sent())


def test_whatever_goes_wrong_is_one_line_and_the_message_stays(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    agent = Agent(home, "leader", monkeypatch)
    path = agent.message("user_goal", "goal: a README")
    memory = home / "workspace" / "council" / "leader" / "memory.db"
    memory.parent.mkdir(parents=True)
    memory.write_bytes(b"no database" * 100)
    assert agent.told(path) == 1
    assert capsys.readouterr().out == f"{path.name}: DatabaseError: file is not a database\n"
    assert (agent.sent(), path.exists()) == ({}, True)
    monkeypatch.delenv("KINGDOM_AGENT")
    assert agent.told(path) == 2
    assert "the council starts this program" in capsys.readouterr().out


def test_a_task_that_was_deleted_without_a_report_is_given_out_once_more(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = Agent(home, "coordinator", monkeypatch)
    agent.told(agent.message("task_list", "{goal: x, tasks: [{task_id: a, title: b c}]}", "strategist"))
    silent = "{task_id: a, original_assignee: ignitian_1, failure_reason: it is silent}"
    agent.told(agent.message("escalation", silent.replace("_1", "_2"), "queue_monitor"))
    assert len(agent.sent()) == 1, "ignitian_2 does not have it"
    agent.told(agent.message("escalation", silent, "queue_monitor"))
    assert [name.split("/")[0] for name in agent.sent()] == ["ignitian_1", "ignitian_1"]
    agent.told(agent.message("escalation", silent, "queue_monitor"))
    (report,) = [raw for name, raw in agent.sent().items() if name.startswith("leader/")]
    assert b"failed: \"'b c' failed twice: it is silent\"" in report


def test_a_task_without_rules_is_reported_as_an_error(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent(home, "ignitian_1", monkeypatch)
    agent.told(agent.message("task_assignment", "{task_id: a, title: fly, deliverables: [x.md]}"))
    ((_, raw),) = agent.sent().items()
    assert mime.parse_message(raw.decode())["type"] == "task_completed"
    assert 'status: "error"' in raw.decode()


def test_words_of_a_repository_cannot_act(home: Path) -> None:
    shop = repository(home / "shop")
    (shop / "evil.py").write_text("# TODO: ]( <script>alert(1)</script> `x` \x1b[31m | \u202e\n")
    found = goals.load("todo").facts(goals.Repository(str(shop)), ".")
    (line,) = [one for one in found if "evil.py" in one]
    assert line == "- `evil.py:1` TODO: \\]( \\<script\\>alert(1)\\</script\\> \\`x\\` \\[31m \\|".replace(
        "\\](\\ ", "\\]( "
    )


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("README outline for this repository", "outline"),
        ("write a readme", "outline"),
        ("inventory of all TODOs", "todo"),
        ("which FIXMEs are left?", "todo"),
        ("test gaps", "gaps"),
        ("what is untested", "gaps"),
        ("what has no test?", "gaps"),
        *[(goals.title(kind), kind) for kind in goals.GOALS],
        ("build a rocket", None),
        ("", None),
    ],
)
def test_the_kinds_of_goals(words: str, kind: str | None) -> None:
    assert goals.kind_of(words) == kind


def test_folders_that_are_called_as_those_of_a_home_are_part_of_a_repository(home: Path) -> None:
    shop = repository(home / "shop")
    for name in ("src/state/cart.py", "queue/list.py", "workspace/Cargo.py", "build/made.py"):
        (shop / name).parent.mkdir(parents=True, exist_ok=True)
        (shop / name).write_text("# TODO: x\n")
    assert {"src/state/cart.py", "queue/list.py", "workspace/Cargo.py"} <= set(goals.Repository(str(shop)).files)
    assert "build/made.py" not in goals.Repository(str(shop)).files
    founded(shop)
    listed = goals.Repository(str(shop)).files
    assert "src/state/cart.py" in listed
    assert {"queue/list.py", "workspace/Cargo.py"}.isdisjoint(listed)


def test_a_goal_about_a_folder_without_files_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "empty" / ".git").mkdir(parents=True)
    agent = Agent(home, "strategist", monkeypatch)
    agent.told(agent.message("strategy_request", f"{{goal: a README, workspace: {home / 'empty'}}}", "leader"))
    ((_, raw),) = agent.sent().items()
    assert "feasible: false" in raw.decode()
    assert f"there is nothing to look at in {home / 'empty'}; " in raw.decode()
