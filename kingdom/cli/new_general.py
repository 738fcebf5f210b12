"""Write a starter package: every field of the manifest explained, and a program that answers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from kingdom.base.disk.atomic import Disk, make_folder
from kingdom.base.errors import BadName, Collision
from kingdom.base.home.places import PROGRAM, Places

_NAME = re.compile(r"gen-[a-z][a-z0-9-]{0,60}")

MANIFEST = """\
# What {name} can do, when it works, and within which limits. docs/generals.md explains every field.
# After a change: kingdom generals install generals/{name}
name: {name}
description: Repeats what it was told
# A soldier that takes longer is asked to end; while it prints something it gets up to twice that.
timeout_seconds: 60

# Who does the work: `command` is the executable `run` in this folder.
engine: command

# Words in a message that lead here: kingdom say "{word} hello"
keywords:
  - {word}

# Events it acts on: exact types, or wildcards such as github.pr.*
subscribes: []

# Work of its own, by the clock. Without `timezone` it is the machine's, or that of config/system.yaml.
schedules: []
#  - name: morning
#    cron: "0 9 * * 1-5"
#    task_type: morning
#    payload:
#      description: Weekday 09:00
#    catch_up: latest         # after an absence: skip, latest, all

# Variables from .env or the environment that its soldiers may see. They see no others.
env: []

# limits:
#   memory_mb: 2048
#   cpu_seconds: 3600
#   processes: 512
#   budget_usd: null          # of one task, over all its attempts
# default_repo: owner/name    # cloned into the workspace when the event names none
# max_soldiers: null          # at the same time; king.yaml limits all generals together
# sandbox: on                 # off: its soldiers may write wherever you may
"""

PROMPT = """\
# {name}, {{{{TASK_ID}}}}

Somebody told the kingdom: {{{{payload.text}}}}

Say back what it was. Write the result as JSON to $KINGDOM_RESULT_PATH:
{{"task_id": "{{{{TASK_ID}}}}", "status": "success", "summary": "..."}}
"""

README = """\
# {name}

Repeats what it was told: a starter package.

    kingdom generals validate generals/{name}
    kingdom generals install generals/{name}
    kingdom say "{word} hello"

- `manifest.yaml` the words and events that lead here, the schedules, the limits.
- `run` the soldier: one run for one task. Any language will do.
- `prompt.md` what an engine with a model would be told; `run` gets it on its standard input too.
"""

RUN = '''\
#!/usr/bin/env python3
"""Do one task: read it from $KINGDOM_TASK_FILE, write its result to $KINGDOM_RESULT_PATH."""

import json
import os

with open(os.environ["KINGDOM_TASK_FILE"], encoding="utf-8") as file:
    task = json.load(file)

text = task["payload"].get("text") or f"nothing ({task['type']})"
result = {"task_id": task["id"], "status": "success", "summary": f"I was told: {text}"}

# Other results: {"status": "failed", "error": "..."}, {"status": "skipped", "reason": "..."},
# {"status": "needs_human", "question": "..."}; the answer comes as a task of type "resume".

with open(os.environ["KINGDOM_RESULT_PATH"], "w", encoding="utf-8") as file:
    json.dump(result, file, ensure_ascii=False)
'''

FILES: Mapping[str, str] = {"manifest.yaml": MANIFEST, "prompt.md": PROMPT, "README.md": README}


def full_name(name: str) -> str:
    """Return the whole name: `weather` and `gen-weather` both mean gen-weather."""
    full = name if name.startswith("gen-") else f"gen-{name}"
    if not _NAME.fullmatch(full):
        raise BadName(what="general", name=name, why="gen-, then a small letter, then small letters, digits and -")
    return full


def write(places: Places, disk: Disk, name: str) -> Path:
    """Write a package that is valid and answers as it is. Collision when something is there already."""
    package = places.package(name)
    if package.exists():
        raise Collision(path=package)
    make_folder(package)
    words = {"name": name, "word": name.removeprefix("gen-")}
    for file, text in FILES.items():
        disk.create(package / file, text.format(**words).encode())
    run = package / PROGRAM
    disk.create(run, RUN.encode())
    run.chmod(0o700)
    return package
