"""A council at full size: how long 200 tasks take 32 ignitians, beside what no council could be faster than."""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path
from typing import Any

from bench import homes
from bench.figures import Found
from kingdom.base.home.places import find_codec
from kingdom.council import mime

IGNITIANS, TASKS, LONGEST = 32, 200, 120.0
AGENT = """
import contextlib, io, os, sys
sys.path.insert(0, os.path.dirname(os.path.realpath(os.path.join(os.environ["KINGDOM_HOME"], "codec.py"))))
import ignite_mime
def send(to, kind, body, re):
    said = ["send", "--from", os.environ["KINGDOM_AGENT"], "--to", to, "--type", kind, "--reply-to", re, "--body", body]
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


Task = dict[str, Any]


def run(quick: bool) -> Found:
    found, number = Found(), 40 if quick else TASKS
    tasks = drawn(number)
    least = max(max(task["rest"] for task in tasks), sum(task["seconds"] for task in tasks) / IGNITIANS)
    name = f"tasks of 1 to 5 s, {IGNITIANS} ignitians"
    found.add(name, f"{number} tasks", [wall(homes.folder() / "council", tasks)])
    found.add("the least, a tenth more and 5 s", f"{number} tasks", [1.1 * least + 5])
    found.add("the least", f"{number} tasks", [least])
    return found


def drawn(number: int) -> list[Task]:
    """Return tasks of which each needs up to two earlier ones, the same ones each time.

    `rest` is how long the longest chain takes that begins with a task.
    """
    dice = random.Random(32)
    tasks: list[Task] = []
    for place in range(number):
        known = [task["task_id"] for task in tasks[: max(0, place - 40)]]
        needs = sorted(dice.sample(known, min(len(known), dice.choice((0, 0, 1, 2)))))
        name, length = f"t-{place:03d}", round(dice.uniform(1, 5), 2)
        tasks.append({"task_id": name, "title": "wait", "seconds": length, "dependencies": needs})
    for task in reversed(tasks):
        after = [later["rest"] for later in tasks if task["task_id"] in later["dependencies"]]
        task["rest"] = task["seconds"] + max(after, default=0.0)
    return tasks


def wall(home: Path, tasks: list[Task]) -> float:
    """Return the seconds from the list of tasks to the end of the last one."""
    commands: dict[str, dict[str, Any]] = {
        name: {"command": [sys.executable, f"{name}.py"]} for name in ("ignitian", "coordinator")
    }
    commands["coordinator"]["at_once"] = 40
    settings = {"agents": commands, "queue": {"parallel_max": 40}, "defaults": {"worker_count": IGNITIANS}}
    places = homes.bare(home, council=settings)
    (home / "codec.py").symlink_to(find_codec())
    for name, text in {"ignitian": IGNITIAN, "coordinator": f"IGNITIANS = {IGNITIANS}\n{COORDINATOR}"}.items():
        (home / f"{name}.py").write_text(AGENT + text)
    ended = places.workspace("council", "coordinator") / "ended"
    with homes.process("kingdom.council", home=home):
        homes.wait_for(places.heartbeat("council").exists, 30, "the council beats")
        body = f"tasks: {json.dumps(tasks)}\n"
        draft = home / "draft"
        draft.write_text(
            mime.build_message(from_agent="leader", to_agents="coordinator", msg_type="task_list", body=body)
        )
        began = time.monotonic()
        draft.rename(places.agent("coordinator") / f"task_list_{time.time_ns() // 1000}.mime")
        homes.wait_for(ended.exists, LONGEST, "the end of the last task")
        return time.monotonic() - began
