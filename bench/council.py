"""A council at full size: how long 200 tasks take 32 ignitians, beside what no council could be faster than."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from bench import homes
from bench.figures import at_most
from kingdom.base.disk.atomic import make_folder
from kingdom.base.home.places import Places, find_codec
from kingdom.council import mime

ABOUT = (
    "A coordinator assigns 200 tasks of 1 to 5 s, each with up to two others that it needs, to 32 ignitians, two deep; "
    "an ignitian waits for as long as its task takes, and says that it is done. Each turn is a Python program in a "
    "sandbox that sends by its outbox; each message is checked by its schema and survives a power cut. Floor: the "
    "longest chain of tasks, or all work divided by 32, whichever is longer."
)
IGNITIANS, PARALLEL_MAX, TASKS = 32, 40, 200
LONGEST = 120.0
AGENT = """
import contextlib, io, os, sys
sys.path.insert(0, os.path.dirname(os.path.realpath(os.path.join(os.environ["KINGDOM_HOME"], "codec.py"))))
import ignite_mime

def send(to, kind, body, asked):
    said = ["send", "--from", os.environ["KINGDOM_AGENT"], "--to", to, "--type", kind, "--reply-to", asked]
    said += ["--body", body]
    with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO())):
        assert ignite_mime.main(said) == 0
"""
IGNITIAN = """
import time
path = sys.argv[1]
words = ignite_mime.extract_body(open(path).read()).split()
time.sleep(float(words[words.index("estimated_time:") + 1]))
send("coordinator", "task_completed", f"task_id: {words[1]}\\nstatus: success\\ndeliverables: []\\n", path)
os.unlink(path)
"""
COORDINATOR = """
import json
plan = os.path.join(os.environ["KINGDOM_WORKSPACE"], "plan.json")
state = json.load(open(plan)) if os.path.exists(plan) else {"tasks": {}, "given": {}, "done": []}
for path in sys.argv[1:]:
    body = ignite_mime.extract_body(open(path).read())
    if body.startswith("tasks:"):
        state["tasks"] = {task["task_id"]: task for task in json.loads(body.removeprefix("tasks:"))}
    else:
        task = body.split()[1]
        if task not in state["done"]:
            state["done"].append(task)
            del state["given"][task]
load = {f"ignitian_{number}": 0 for number in range(1, IGNITIANS + 1)}
for agent in state["given"].values():
    load[agent] += 1
done = set(state["done"])
ready = [task for name, task in state["tasks"].items()
         if name not in done and name not in state["given"] and done.issuperset(task["dependencies"])]
for task in sorted(ready, key=lambda task: -task["rest"]):
    agent = min(load, key=lambda name: load[name])
    if load[agent] == 2:
        break
    load[agent] += 1
    state["given"][task["task_id"]] = agent
    about = f"task_id: {task['task_id']}\\ntitle: wait\\nestimated_time: {task['seconds']}\\n"
    send(agent, "task_assignment", about, sys.argv[1])
with open(plan + ".new", "w") as file:
    json.dump(state, file)
os.rename(plan + ".new", plan)
for path in sys.argv[1:]:
    os.unlink(path)
if len(done) == len(state["tasks"]):
    open(os.path.join(os.environ["KINGDOM_WORKSPACE"], "ended"), "w")
"""


class Task(NamedTuple):
    name: str
    seconds: float
    needs: list[str]


def run(quick: bool) -> dict[str, Any]:
    number = 40 if quick else TASKS
    tasks = drawn(number)
    least = ideal(tasks)
    took = wall(homes.folder() / "council", tasks)
    goal = 1.1 * least + 5
    made = at_most(
        f"{number} tasks of 1 to 5 s, {IGNITIANS} ignitians",
        took,
        round(goal, 1),
        "s",
        reason="the machine's processors are busy with the programs of the agents",
        floor=least,
        floor_is="the longest chain, or all work / 32",
        ratio=took / least,
    )
    return {"title": "The council", "about": ABOUT, "rows": [made]}


def drawn(number: int) -> list[Task]:
    """Return tasks of which each needs up to two earlier ones, the same ones each time."""
    dice = random.Random(32)
    tasks: list[Task] = []
    for place in range(number):
        known = [task.name for task in tasks[: max(0, place - 40)]]
        needs = sorted(dice.sample(known, min(len(known), dice.choice((0, 0, 1, 2)))))
        tasks.append(Task(f"t-{place:03d}", round(dice.uniform(1, 5), 2), needs))
    return tasks


def rests(tasks: list[Task]) -> dict[str, float]:
    """Return for each task how long the longest chain is that begins with it."""
    found: dict[str, float] = {}
    for task in reversed(tasks):
        after = [found[later.name] for later in tasks if task.name in later.needs]
        found[task.name] = task.seconds + max(after, default=0.0)
    return found


def ideal(tasks: list[Task]) -> float:
    return max(max(rests(tasks).values()), sum(task.seconds for task in tasks) / IGNITIANS)


def wall(home: Path, tasks: list[Task]) -> float:
    """Return the seconds from the list of tasks to the end of the last one."""
    places = Places(home)
    for folder in places.folders():
        make_folder(folder)
    home.chmod(0o700)
    (home / "codec.py").symlink_to(find_codec())
    for name, text in {"ignitian": IGNITIAN, "coordinator": f"IGNITIANS = {IGNITIANS}\n{COORDINATOR}"}.items():
        (home / f"{name}.py").write_text(AGENT + text)
    command = {name: {"command": [sys.executable, f"{name}.py"]} for name in ("ignitian", "coordinator")}
    command["coordinator"]["at_once"] = 40  # type: ignore[assignment]
    settings = {"agents": command, "queue": {"parallel_max": PARALLEL_MAX}, "defaults": {"worker_count": IGNITIANS}}
    (places.config / "council.yaml").write_text(yaml.safe_dump(settings))
    ended = places.workspace("council", "coordinator") / "ended"
    council = subprocess.Popen(
        [sys.executable, "-P", "-m", "kingdom.council"],
        env={**os.environ, "KINGDOM_HOME": str(home)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until(places.heartbeat("council").exists)
        long = rests(tasks)
        body = json.dumps(
            [
                {
                    "task_id": task.name,
                    "title": "wait",
                    "seconds": task.seconds,
                    "dependencies": task.needs,
                    "rest": long[task.name],
                }
                for task in tasks
            ]
        )
        message = mime.build_message(
            from_agent="leader", to_agents="coordinator", msg_type="task_list", body=f"tasks: {body}\n"
        )
        draft = home / "draft"
        draft.write_text(message)
        began = time.monotonic()
        draft.rename(places.agent("coordinator") / f"task_list_{time.time_ns() // 1000}.mime")
        until(ended.exists)
        return time.monotonic() - began
    finally:
        council.terminate()
        council.wait()


def until(seen: Any) -> None:
    give_up = time.monotonic() + LONGEST
    while not seen():
        if time.monotonic() > give_up:
            raise TimeoutError("the council does not come to an end")
        time.sleep(0.005)
