"""What a soldier is sent out with: engine, prompt, marching order, and an environment of named things only."""

from __future__ import annotations

import os
import secrets as dice
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from kingdom.disk.atomic import make_folder
from kingdom.disk.codec import read_bytes, to_json
from kingdom.errors import BadFile, BadName, KingdomError
from kingdom.home import config
from kingdom.home.manifests import Manifest, program_misfit
from kingdom.home.places import PROGRAM, check_name
from kingdom.records.messages import Task
from kingdom.runtime.role import Services
from kingdom.soldiers import consent, memory, prompt
from kingdom.soldiers.handle import Barrack

PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TERM", "USER", "LOGNAME", "SHELL", "PYTHONPATH")
"""What every soldier may see of our environment; a manifest's `env` adds to it."""

KEYS = (".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".netrc", ".git-credentials", ".config/gh")
"""Where people keep keys and tokens in their own folder."""


class NeedsSetUp(KingdomError):
    """needs set-up: {why}"""


def engine(services: Services, manifest: Manifest) -> tuple[str, Path]:
    """Which engine will do the work, and the program it starts."""
    name = engine_name(services, manifest)
    program = services.places.package(manifest.name) / PROGRAM
    if name != "command":
        raise NeedsSetUp(
            why=f"the engine {name!r} of {manifest.name} is not there; its manifest can say `engine: command`"
        )
    if not os.access(program, os.X_OK):
        why = "no engine that thinks is set up, and it has no executable `run` of its own"
        raise NeedsSetUp(why=f"{manifest.name} has nobody to do the work: {why} ({program})")
    if program.is_file() and (misfit := program_misfit(program)) is not None:
        raise NeedsSetUp(why=misfit)
    return name, program


def engine_name(services: Services, manifest: Manifest) -> str:
    name = manifest.engine or str(services.system["default_engine"])
    if manifest.supported_engines and name not in manifest.supported_engines:
        return manifest.supported_engines[0]
    return name


def account(manifest: Manifest, engine: str) -> str:
    """Whose quota an engine uses: the command engine's programs each have their own."""
    return f"command:{manifest.name}" if engine == "command" else engine


def order(
    services: Services, manifest: Manifest, task: Task, barrack: Barrack, engine: str, program: Path, workspace: Path
) -> dict[str, Any]:
    """Everything the serving part needs, in one file that it reads once."""
    places = services.places
    task, external = consent.settled(places, manifest.name, task)
    soldier = soldier_name(task)
    task_file = barrack.camp / "task.json"
    make_folder(barrack.camp)
    services.unsynced.rewrite(task_file, to_json(task.to_json()))
    return {
        "soldier": soldier,
        "task_id": task.id,
        "general": manifest.name,
        "attempt": task.attempt,
        "engine": engine,
        "account": account(manifest, engine),
        "executable": str(program),
        "workspace": str(workspace),
        "prompt": str(_write_prompt(services, manifest, task, engine)),
        "result_path": str(barrack.result_path),
        "out": str(places.session_log(soldier, "out")),
        "err": str(places.session_log(soldier, "err")),
        "limits": dict(manifest.limits),
        "sandbox": manifest.sandbox,
        "external": external,
        "question": consent.question(manifest.name),
        "may_write": [str(workspace), str(barrack.room)],
        "may_not_read": [str(path) for path in (*places.withheld_from(manifest.name, task.id), *_keys())],
        "env": {"KINGDOM_TASK_FILE": str(task_file), "TMPDIR": str(barrack.room)},
    }


def environment(services: Services, manifest: Manifest, task: Task, barrack: Barrack) -> dict[str, str]:
    """A soldier holds no token that it was not given."""
    ours: Mapping[str, str] = {**os.environ, **config.secrets(services.places)}
    passed = {name: ours[name] for name in (*PASSED_ON, *manifest.env) if name in ours}
    return {
        **passed,
        "PATH": f"{Path(sys.executable).parent}:{passed.get('PATH', '/usr/bin:/bin')}",
        "KINGDOM_HOME": str(services.places.home),
        "KINGDOM_TASK_ID": task.id,
        "KINGDOM_RESULT_PATH": str(barrack.result_path),
    }


def _keys() -> Iterator[Path]:
    """Of the house's owner; a general that needs one is given it in its `env`."""
    with suppress(RuntimeError):
        yield from (Path.home() / name for name in KEYS)


def soldier_name(task: Task) -> str:
    return f"soldier-{task.id}-{task.attempt}"


def _write_prompt(services: Services, manifest: Manifest, task: Task, engine: str) -> Path:
    text = prompt.write(
        _template(services, manifest, task, engine),
        task,
        memory=memory.recall(services.places, manifest.name, task.repo),
        boundary=dice.token_hex(8),
        largest_bytes=services.config["prompt"]["largest_bytes"],
    )
    paper = services.places.prompt(task.id)
    services.unsynced.rewrite(paper, text.encode())
    return paper


def _template(services: Services, manifest: Manifest, task: Task, engine: str) -> str:
    """`prompt-<action>.md`, else `prompt-<engine>.md`, else `prompt.md`."""
    package = services.places.package(manifest.name)
    for name in _template_names(task, engine):
        try:
            return read_bytes(package / name).decode("utf-8")
        except FileNotFoundError:
            continue
        except (BadFile, UnicodeDecodeError) as trouble:
            raise NeedsSetUp(why=f"{package / name}: {trouble}") from None
    raise NeedsSetUp(why=f"{package / 'prompt.md'} is not there")


def _template_names(task: Task, engine: str) -> Iterator[str]:
    with suppress(BadName):
        yield f"prompt-{check_name('action', task.type.rpartition('.')[2])}.md"
    yield from (f"prompt-{engine}.md", "prompt.md")
