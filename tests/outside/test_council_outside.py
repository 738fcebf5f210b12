"""A council of which two roles are the real Claude Code: each reads its message, sends an answer, and deletes it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.home.places import Places, find_codec, find_data
from kingdom.council import mime
from tests.council.monitor.councils import caged
from tests.council.team.teams import team_of
from tests.faults import homes
from tests.fixtures import all_of
from tests.outside.outside import CANARY, KEYS, PROGRAMS, WHOLE_RUN_SECONDS, Step, service, shell
from tests.waiting import wait_until

AGENTS = find_data() / "generals" / "gen-council" / "agents"
MEND = Path(__file__).with_name("team_mend.py")

ANSWERS = {
    "user_goal": ("strategist", "strategy_request", '{goal: "a README"}'),
    "strategy_request": ("leader", "strategy_response", '{goal: "a README", strategy: "one page"}'),
    "strategy_response": ("user", "progress_update", '{repository: acme/shop, summary: "one page it is", final: true}'),
}
"""What the played model answers to a message, by the type that it reads in the file."""


def played(body: Mapping[str, Any]) -> Step:
    """Return what the model does next: it reads the file, answers what stands in it, and ends."""
    said = [json.dumps(message, ensure_ascii=False) for message in body["messages"]]
    begins = max(place for place, text in enumerate(said) if "You are the agent `" in text)
    agent = re.findall(r"You are the agent `(\w+)`", said[begins])[-1]
    path = re.findall(r"- (/[^\s\\]+\.mime)", said[begins])[-1]
    seen = [text for text in said[begins + 1 :] if "tool_result" in text]
    if not seen:
        return shell("claude", f"cat {path}")
    if len(seen) == 1:
        to, kind, text = ANSWERS[re.findall(r"X-IGNITE-Type: (\w+)", seen[0])[-1]]
        send = f"python3 {os.environ['PLAYED_CODEC']} send --from {agent} --to {to} --type {kind} --reply-to {path}"
        return shell("claude", f"{send} --body '{text}' && rm {path}")
    return Step('{"status": "success", "summary": "sent"}')


def test_two_real_agents_answer_each_other_and_people_read_the_end(home: Path, monkeypatch: Any) -> None:
    with service("claude", played) as model:
        row = {"engine": "claude"}
        about = {
            "system": {"runtime": {"claude": {"command": str(PROGRAMS["claude"])}}},
            "council": {"agents": {"leader": row, "strategist": row}, "defaults": {"task_timeout": WHOLE_RUN_SECONDS}},
        }
        places = homes.make(home, config=about)
        places.codec.parent.mkdir(parents=True)
        places.codec.symlink_to(find_codec())
        monkeypatch.setenv("PLAYED_CODEC", str(places.codec))
        places.env_file.write_text(f"{KEYS['claude']}={CANARY}\nANTHROPIC_BASE_URL={model.address}\n")
        places.env_file.chmod(0o600)
        raw = mime.build_message(
            from_agent="user", to_agents="leader", msg_type="user_goal", thread_id="t-1", body='goal: "a README"\n'
        )
        places.told("leader").mkdir(parents=True)
        (places.agent("leader") / "user_goal_1770000000000001.mime").write_text(raw)
        council = subprocess.Popen(
            [sys.executable, "-P", "-m", "kingdom.council"],
            env={**os.environ, "KINGDOM_HOME": str(home)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            wait_until(lambda: all_of(home, "messages", "pending"), WHOLE_RUN_SECONDS, "people read the end")
            wait_until(lambda: not list(places.council.rglob("*.mime")), WHOLE_RUN_SECONDS, "all is deleted")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{_said(places)}") from None
        finally:
            council.terminate()
            council.wait(30)
        (post,) = all_of(home, "messages", "pending")
        assert (post["content"], post["context"]["thread"]) == (
            "[council] leader (acme/shop, done): one page it is",
            "t-1",
        )
        told = json.dumps([body["messages"][0] for body in model.asked], ensure_ascii=False)
        assert "a README" not in told, "the prompt holds the path and no word of a message"
        assert "retry" not in _said(places)


REVIEWS = {
    "design_review_request": ("architect", "design_review_response", '{goal: "a README", review_result: approved}'),
    "insight_request": ("innovator", "insight_response", '{goal: "a README", insights: [none]}'),
}


def of_the_team(body: Mapping[str, Any]) -> Step:
    """Play architect and innovator: answer what strategist asks, and mend what evaluator has sent back."""
    said = [json.dumps(message, ensure_ascii=False) for message in body["messages"]]
    begins = max(place for place, text in enumerate(said) if "You are the agent `" in text)
    path = re.findall(r"- (/[^\s\\]+\.mime)", said[begins])[-1]
    if any("tool_result" in text for text in said[begins + 1 :]):
        return Step('{"status": "success", "summary": "sent"}')
    kind = Path(path).name.rpartition("_")[0]
    codec = os.environ["PLAYED_CODEC"]
    if kind == "improvement_request":
        return shell("claude", f"python3 {MEND} {codec} {path} && rm {path}")
    me, answer, text = REVIEWS[kind]
    send = f"python3 {codec} send --from {me} --to strategist --type {answer} --reply-to {path} --once {answer}"
    return shell("claude", f"{send} --body '{text}' && rm {path}")


def test_two_real_agents_work_in_the_team(home: Path, tmp_path: Path, monkeypatch: Any) -> None:
    with service("claude", of_the_team) as model:
        rows = {
            name: {"engine": "claude", "instructions": f"{AGENTS}/{name}.md"} for name in ("architect", "innovator")
        }
        runtime = {"claude": {"command": str(PROGRAMS["claude"])}}
        with team_of(home, tmp_path / "shop", agents=rows, defaults={"task_timeout": WHOLE_RUN_SECONDS}) as team:
            furnish(team.places, monkeypatch, runtime, {KEYS["claude"]: CANARY, "ANTHROPIC_BASE_URL": model.address})
            team.council.start(agents=rows, defaults={"task_timeout": WHOLE_RUN_SECONDS})
            team.give()
            result = wait_until(lambda: team.step_to_result(), WHOLE_RUN_SECONDS, "the goal has ended")
            assert (result["status"], team.council.names("dead_letter")) == ("success", []), _said(team.places)
            text = (team.places.deliverables / team.task / "README-outline.md").read_text()
            assert "- 9 files in all" in text, "innovator has mended what was missing"
            told = team.told("design_review_response", "insight_response", "improvement_completed")
            assert sorted(told) == [
                "architect → strategist design_review_response",
                "innovator → leader improvement_completed",
                "innovator → strategist insight_response",
            ]
            asked = json.dumps([body["messages"][0] for body in model.asked], ensure_ascii=False)
            assert "You judge how things hang together" in asked
            assert "README outline" not in asked


PLAN = "{goal: g, tasks: [{task_id: a, title: first}, {task_id: b, title: second, dependencies: [a]}]}"
TASK_OF = 'id=$(sed -n \'s/^task_id: "\\(.*\\)"/\\1/p\' "$path"); '
STRATEGIST = """
python3 CODEC send --from strategist --to leader --type strategy_response --reply-to $path --once answer \
    --body '{goal: g, strategy: two files, task_count: 2}' &&
python3 CODEC send --from strategist --to coordinator --type task_list --reply-to $path --once list --body 'PLAN' &&
rm $path""".replace("PLAN", PLAN)
IGNITIAN = (
    TASK_OF
    + """echo "made $id" >$id.md;
python3 CODEC send --from ignitian_1 --to coordinator --type task_completed --reply-to $path --once $id \
    --body "{task_id: $id, status: success, deliverables: [{file: $id.md, location: $PWD/$id.md}]}" &&
rm $path"""
)
EVALUATOR = (
    TASK_OF
    + """
python3 CODEC send --from evaluator --to coordinator --cc leader --type evaluation_result --reply-to $path \
    --body "{task_id: $id, title: $id, overall_status: pass}" &&
rm $path"""
)


RESULTS = ("tool_result", "call_output", '"role": "tool"')
"""What stands in a model's conversation behind a command, by its service's protocol."""


def one_command(engine: str, script: str) -> Any:
    """Return a model that does one thing for each message that it is told of."""

    def step(body: Mapping[str, Any]) -> Step:
        said = [json.dumps(part, ensure_ascii=False) for part in body["input" if engine == "codex" else "messages"]]
        begins = max(place for place, text in enumerate(said) if "You are the agent `" in text)
        if any(mark in text for text in said[begins + 1 :] for mark in RESULTS):
            return Step('{"status": "success", "summary": "sent"}')
        path = re.findall(r"- (/[^\s\\]+\.mime)", said[begins])[-1]
        return shell(engine, f"path={path}; {script.replace('CODEC', os.environ['PLAYED_CODEC'])}")

    return step


@pytest.mark.parametrize("engine", ["codex", "opencode"])
def test_a_team_of_three_engines_reaches_its_goal(engine: str, home: Path, tmp_path: Path, monkeypatch: Any) -> None:
    with (
        service("claude", one_command("claude", STRATEGIST)) as claude,
        service(engine, one_command(engine, IGNITIAN)) as works,
    ):
        evaluator = f'path="$1"; {EVALUATOR}'.replace("CODEC", str(find_codec()))
        rows = {
            "strategist": {"engine": "claude", "instructions": f"{AGENTS}/strategist.md"},
            "ignitian": {"engine": engine, "instructions": f"{AGENTS}/ignitian.md"},
            "evaluator": caged(evaluator),
        }
        settings = {"agents": rows, "defaults": {"task_timeout": WHOLE_RUN_SECONDS, "worker_count": 1}}
        runtime = {
            "claude": {"command": str(PROGRAMS["claude"])},
            engine: {"command": str(PROGRAMS[engine]), "base_url": f"{works.address}/v1", "model": "played-model"},
        }
        with team_of(home, tmp_path / "shop", **settings) as team:
            secrets = {KEYS["claude"]: CANARY, "ANTHROPIC_BASE_URL": claude.address, KEYS[engine]: CANARY}
            furnish(team.places, monkeypatch, runtime, secrets)
            team.council.start(**settings)
            team.give()
            result = wait_until(lambda: team.step_to_result(), WHOLE_RUN_SECONDS, "the goal has ended")
            assert (result["status"], team.council.names("dead_letter")) == ("success", []), _said(team.places)
            assert (team.places.deliverables / team.task / "b.md").read_text() == "made b\n"
            assert team.told("task_assignment", "task_completed") == [
                *("coordinator → ignitian_1 task_assignment", "ignitian_1 → coordinator task_completed"),
                *("coordinator → ignitian_1 task_assignment", "ignitian_1 → coordinator task_completed"),
            ]
            assert "retry" not in team.council.log


def furnish(
    places: Places, monkeypatch: Any, runtime: Mapping[str, Mapping[str, str]], secrets: Mapping[str, str]
) -> None:
    """Write into a home what the engines' programs need, and where the played models find the codec."""
    (places.config / "system.yaml").write_text(json.dumps({"runtime": runtime}))
    places.codec.parent.mkdir(parents=True, exist_ok=True)
    places.codec.symlink_to(find_codec())
    monkeypatch.setenv("PLAYED_CODEC", str(places.codec))
    places.env_file.write_text("".join(f"{name}={value}\n" for name, value in secrets.items()))
    places.env_file.chmod(0o600)


def _said(places: Places) -> str:
    log = places.role_log("council")
    return (log.read_text() if log.exists() else "") + "".join(
        f"\n--- {path.name}\n{path.read_text()[-3000:]}" for path in places.session_logs.glob("*")
    )
