"""From GitHub and Jira to a thread in Slack, through the whole court: the real programs are soldiers of our generals.

The services and the model are played on loopback; nothing else is.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from kingdom.base.home.states import MOVES
from kingdom.demo.standins import github, jira
from kingdom.demo.standins.github import GitHub
from kingdom.demo.standins.jira import Jira
from kingdom.demo.standins.model import Model, Step, in_turn
from kingdom.demo.standins.slack import Slack
from tests.fixtures import WITHOUT_HALL, content
from tests.journey.conftest import founded
from tests.journey.kingdoms import Kingdom
from tests.outside.conftest import missing
from tests.outside.outside import CANARY, KEYS, PROGRAMS, WHOLE_RUN_SECONDS, service, shell

GENERALS = ("gen-pr", "gen-jira", "gen-test", "gen-catchup")
ROOM = "C0KINGDOM"
SEEN = "git fetch -q origin refs/pull/7/head && git diff --stat origin/main...FETCH_HEAD"
REVIEW = """Should be changed first: an empty cart now raises an error.
What changed: the sum is taken in one step.
Risks: carts without a line; `tests/test_sum.py` has none.
Proposed comments:
- sum.py:1 — keep the start value 0."""


class Court:
    """A kingdom that is up, with our generals, an engine's real program, and a model that is played."""

    def __init__(self, kingdom: Kingdom, engine: str, model: Model, slack: Slack, hub: GitHub, tickets: Jira) -> None:
        self.kingdom, self.engine, self.model = kingdom, engine, model
        self.slack, self.hub, self.tickets = slack, hub, tickets

    def done(self, task: str) -> dict[str, Any]:
        """A task that has ended; its file as `cat` shows it."""
        return self.kingdom.read("tasks", "completed", task)

    def says(self, *steps: Step) -> None:
        self.model.script = in_turn(*steps)

    def event_of(self, beginning: str) -> str:
        """The id of the event that the sentinel has made, by how it begins."""

        def found() -> str | None:
            folders = (self.kingdom.places.folder("events", state) for state in MOVES["events"])
            return next((path.stem for folder in folders for path in folder.glob(f"{beginning}*.json")), None)

        return str(self.kingdom.until(found, f"an event {beginning}…"))

    def thread(self, task: str) -> list[dict[str, Any]]:
        """A task's posts in Slack: the one that opens its thread, and those that hang under it."""
        sent = [message for message in self.kingdom.all("messages", "sent") if message["task_id"] == task]
        ts = next(message["posted"]["post"] for message in sent if message["type"] == "thread_start")
        return [post for post in self.slack.from_kingdom(ROOM) if ts in (post["ts"], post.get("thread_ts"))]

    def way(self, event: str, task: str) -> str:
        """The files of an event, each as `cat` finds it, for whoever reads the run."""
        places, sent = self.kingdom.places, self.kingdom.all("messages", "sent")
        messages = [
            places.queue_file("messages", "sent", message["id"]) for message in sent if message["task_id"] == task
        ]
        ended = [places.queue_file("events", "completed", event), places.queue_file("tasks", "completed", task)]
        paths = [*ended, places.results / f"{task}.json", *messages]
        assert all(json.loads(path.read_text()) for path in paths)
        return f"{self.engine}: " + " → ".join(str(path.relative_to(places.home)) for path in paths)

    def task_of(self, event: str) -> str:
        found: str = self.kingdom.until(lambda: _task_of(self.kingdom, event), f"a task of {event}")
        return found

    def told(self, task: str, words: str) -> str:
        """The message with these words in a task's conversation."""
        kingdom = self.kingdom
        kingdom.until(lambda: any(words in said for said in kingdom.messages(task)), f"{words!r} is said of {task}")
        return next(said for said in kingdom.messages(task) if words in said)


def _task_of(kingdom: Kingdom, event: str) -> str | None:
    try:
        return kingdom.task_of(event)
    except AssertionError:
        return None


@pytest.fixture(scope="module", params=["claude", "codex"])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def court(engine: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Court]:
    if why := missing(engine):
        pytest.skip(why)
    source = a_repository(tmp_path_factory.mktemp("acme"))
    with ExitStack() as services:
        model = services.enter_context(service(engine, in_turn(Step("ok"))))
        slack, hub, tickets = (services.enter_context(service) for service in (Slack(), GitHub(), Jira()))
        hub.poll_interval = 1

        def prepare(kingdom: Kingdom) -> None:
            runtime: dict[str, Any] = {"command": str(PROGRAMS[engine])}
            secrets = {KEYS[engine]: CANARY, "GH_TOKEN": github.TOKEN}
            secrets |= {"JIRA_URL": tickets.address, "JIRA_USER_EMAIL": jira.EMAIL, "JIRA_API_TOKEN": jira.TOKEN}
            secrets |= {"SLACK_BOT_TOKEN": "xoxb-canary-1", "SLACK_APP_TOKEN": "xapp-canary-1"}
            if engine == "claude":
                secrets["ANTHROPIC_BASE_URL"] = model.address
            else:
                runtime |= {"base_url": f"{model.address}/v1", "model": "played-model"}
            config = kingdom.places.config
            system = {"launcher": "tmux", "default_engine": engine, "runtime": {engine: runtime}, **WITHOUT_HALL}
            (config / "system.yaml").write_text(yaml.safe_dump(system))
            (config / "general.yaml").write_text(
                yaml.safe_dump({"repositories": {"known": {"acme/shop": str(source)}}})
            )
            told = {"api_url": slack.api_url, "people": ["U0ANN"], "seconds_between_posts": 0.05}
            (config / "envoy.yaml").write_text(yaml.safe_dump({"slack": told}))
            looks = {"github": {"base_url": hub.address, "interval_seconds": 1}, "jira": {"interval_seconds": 1}}
            (config / "sentinel.yaml").write_text(yaml.safe_dump({"polling": looks}))
            kingdom.places.env_file.write_text("".join(f"{name}={value}\n" for name, value in secrets.items()))
            kingdom.places.env_file.chmod(0o600)

        with contextmanager(founded)("tmux", prepare) as kingdom:
            kingdom.soon = WHOLE_RUN_SECONDS
            for name in GENERALS:
                kingdom.ok("generals", "install", name)
            yield Court(kingdom, engine, model, slack, hub, tickets)


def a_repository(folder: Path) -> Path:
    """acme/shop with a pull request 7."""

    def git(*words: str) -> None:
        identity = ("-c", "user.name=Kim", "-c", "user.email=kim@example.org")
        subprocess.run(["git", *identity, "-C", str(folder), *words], check=True, capture_output=True)

    git("init", "-q", "-b", "main")
    (folder / "sum.py").write_text("def total(cart):\n    return sum(cart, 0)\n")
    git("add", ".")
    git("commit", "-q", "-m", "Begin")
    git("checkout", "-q", "-b", "fix")
    (folder / "sum.py").write_text("def total(cart):\n    return max(cart)\n")
    git("commit", "-q", "-a", "-m", "Fix the sum")
    git("update-ref", "refs/pull/7/head", "HEAD")
    git("checkout", "-q", "main")
    git("branch", "-q", "-D", "fix")
    return folder


def ends(engine: str, **result: Any) -> tuple[Step, ...]:
    """The model ends with a result: by the schema where the program has a tool for it, else in its last words."""
    return (
        (Step(tool="StructuredOutput", input=result), Step("x")) if engine == "claude" else (Step(json.dumps(result)),)
    )


def asked(court: Court) -> str:
    """All that the model was told in its newest request."""
    return json.dumps(court.model.asked[-1], ensure_ascii=False)


def test_a_review_that_was_asked_for_is_made_and_told_in_slack(
    court: Court, record_property: Callable[[str, object], None]
) -> None:
    kingdom, engine = court.kingdom, court.engine
    lesson = "its tests run with pytest"
    court.says(shell(engine, SEEN), *ends(engine, status="success", summary=REVIEW, memory_updates=[lesson]))
    event = court.event_of(f"evt-github-{court.hub.notify(7, title='Fix the sum')}-")
    task = court.task_of(event)
    said = court.told(task, "[complete]")
    assert said == f"[complete] github.pr.review_requested — {REVIEW}"
    assert "sum.py | 2 +-" in asked(court), "the change was there to be read"
    assert "Publish nothing" in asked(court)
    assert kingdom.read("events", "completed", event)["status"] == "completed"
    assert court.done(task)["outcome"] == "success"
    result = json.loads(kingdom.places.result(task).read_text())
    assert result["session_id"]
    assert result["metrics"]["tokens_used"] > 0
    assert not kingdom.places.workspace("gen-pr", task).exists()
    learned = kingdom.places.general_memory("gen-pr") / "learned-patterns.md"
    assert f"- {lesson}\n" in learned.read_text()
    assert f"summary: {REVIEW.splitlines()[0]}" in kingdom.ok("why", event)
    start, *replies = court.thread(task)
    about = "#7 Fix the sum https://github.com/acme/shop/pull/7"
    assert start["text"] == f"[start] github.pr.review_requested — acme/shop\n{about}"
    assert [post["text"] for post in replies] == [said]
    assert court.hub.unread() == []
    record_property("figure", court.way(event, task))


def test_an_unclear_ticket_becomes_a_question_and_its_answer_goes_on_in_the_same_session(
    court: Court, record_property: Callable[[str, object], None]
) -> None:
    """The answer is written in the thread for one engine, and a button that is pressed for the other."""
    kingdom, engine, slack = court.kingdom, court.engine, court.slack
    question = "Which currency? I would take EUR.\n- EUR\n- USD"
    court.says(shell(engine, "echo half >draft"), *ends(engine, status="needs_human", question=question))
    court.tickets.ticket("SHOP-1", "Show the price")
    event = court.event_of("evt-jira-SHOP-1-")
    task = court.task_of(event)
    assert court.told(task, "[question]").startswith(f"[question] {question}")
    first = json.loads(kingdom.places.result(task).read_text())
    court.says(shell(engine, "cat draft"), *ends(engine, status="success", summary="Prices are in EUR now."))
    start, asks = kingdom.until(lambda: len(posts := court.thread(task)) == 2 and posts, "the question is in Slack")
    choices = [part["value"] for block in asks["blocks"] for part in block.get("elements", ()) if "value" in part]
    assert choices == ["EUR", "USD"]
    answer = "EUR please" if engine == "claude" else "EUR"
    if engine == "claude":
        slack.say(answer, channel=ROOM, thread_ts=start["ts"])
    else:
        slack.press(asks["ts"], answer)
    assert "Prices are in EUR now." in court.told(task, "[complete]")
    resumed = next(path for path in kingdom.places.results.glob("task-*-*.json") if _resumes(kingdom, path, task))
    second = json.loads(resumed.read_text())
    assert second["session_id"] == first["session_id"]
    said = asked(court)
    assert kingdom.read("tasks", "completed", resumed.stem)["payload"]["human_response"] == answer
    assert answer in said
    assert "half" in said, "it went on in the folder in which it had asked"
    assert "I would take EUR." in said, "the session knows what it asked"
    heads = [post["text"].split()[0] for post in court.thread(task)]
    assert heads == ["[start]", "[question]", "answer", "[complete]"]
    record_property("figure", court.way(event, task))


def _resumes(kingdom: Kingdom, result: Path, task: str) -> bool:
    if not result.stem.replace("task-", "").replace("-", "").isdigit() or result.stem == task:
        return False
    return bool(kingdom.read("tasks", "completed", result.stem).get("thread_task_id") == task)


def test_somebody_who_was_away_is_told_what_happened(court: Court) -> None:
    kingdom, engine = court.kingdom, court.engine
    look = 'find "$KINGDOM_BASE_DIR"/queue/messages/sent -name "*.json" -print0 | xargs -0 -r cat | head -c 2000'
    court.says(shell(engine, look), *ends(engine, status="success", summary="One review, nothing waits for you."))
    done = kingdom.run("say", "catch me up", seconds=WHOLE_RUN_SECONDS)
    assert "One review, nothing waits for you." in done.stdout, done.stdout + done.stderr + kingdom.complaints()
    assert "thread_start" in asked(court), "it has read what people were told"


def test_the_evenings_tests_are_written_by_the_clock(court: Court) -> None:
    kingdom, engine = court.kingdom, court.engine
    court.says(
        shell(engine, "ls"), *ends(engine, status="skipped", reason="the folder is empty: no repository was set")
    )
    name = f"task-20200101-00{1 if engine == 'claude' else 2}"
    task: Mapping[str, Any] = {
        "id": name,
        "event_id": "schedule-daily-test",
        "target_general": "gen-test",
        "repo": None,
        "type": "daily-test-generation",
        "payload": {"description": "Weekday 22:00 test generation"},
        "priority": "low",
        "created_at": "2026-11-18T22:00:00Z",
        "status": "pending",
        "attempt": 0,
        "scheduled_for": "2026-11-18T22:00:00Z",
    }
    kingdom.put("tasks", name, task)
    assert court.done(name)["outcome"] == "skipped"
    assert "Weekday 22:00 test generation" in asked(court)


TESTS = """\
import unittest
from sum import total


class Sums(unittest.TestCase):
    def test_an_empty_cart_costs_nothing(self):
        self.assertEqual(total([]), 0)


unittest.main()
"""
WRITES = f"""cat >test_sum.py <<'END'
{TESTS}END
python3 -B test_sum.py && sed -i 's/, 0/, 1/' sum.py && ! python3 -B test_sum.py && git checkout -q sum.py
git config user.name k && git config user.email k@example.org
git add test_sum.py && git commit -qm 'An empty cart costs nothing' && echo k''ept"""


def test_tests_that_are_written_for_a_repository_are_kept_and_people_are_told_where(
    court: Court, record_property: Callable[[str, object], None]
) -> None:
    """The model is played; the program, its shell in the sandbox, python and git are real."""
    kingdom, engine = court.kingdom, court.engine
    done = {"status": "success", "summary": "An empty cart is tested.", "metrics": {"files_touched": 1}}
    court.says(shell(engine, "git log --stat | cat; ls"), shell(engine, WRITES), *ends(engine, **done))
    name = f"task-20200101-01{1 if engine == 'claude' else 2}"
    event = {"event_id": "schedule-daily-test", "payload": {"description": "tests"}, "scheduled_for": None}
    about = {"target_general": "gen-test", "repo": "acme/shop", "type": "daily-test-generation", "attempt": 0}
    plain = {"priority": "low", "created_at": "2026-11-18T22:00:00Z", "status": "pending"}
    kingdom.put("tasks", name, {"id": name, **event, **about, **plain})
    assert court.done(name)["outcome"] == "success", kingdom.complaints()
    said = asked(court)
    assert "FAILED (failures=1)" in said, "the test was seen to fail with the defect"
    assert "kept" in said
    folder = kingdom.places.workspace("gen-test", name)
    log = ["git", "-C", str(folder), "log", "--stat", "--format=%s", "origin/main..HEAD"]
    made = subprocess.run(log, check=True, capture_output=True, text=True).stdout
    assert "An empty cart costs nothing" in made
    assert "test_sum.py | " in made
    assert "sum.py |" not in made.replace("test_sum.py", "")
    where = f"Its work is kept in {folder.relative_to(kingdom.home)}; `kingdom tasks work {name}` shows it."
    assert where in court.told(name, "[complete]")
    result = json.loads(kingdom.places.result(name).read_text())
    assert result["metrics"]["files_touched"] == 1
    record_property("figure", f"{engine}: gen-test: {made.split(chr(10))[0]!r} in {folder.relative_to(kingdom.home)}")


def test_no_key_lies_anywhere_but_where_it_was_put(court: Court) -> None:
    home = court.kingdom.home
    files = [path for path in home.rglob("*") if path.is_file() and not path.is_symlink()]
    secrets = [word.encode() for word in (CANARY, github.TOKEN, jira.TOKEN, "xoxb-canary", "xapp-canary")]
    hits = [
        path
        for path in files
        if path != court.kingdom.places.env_file and any(secret in content(path) for secret in secrets)
    ]
    assert hits == []
