"""What a soldier is started with: its engine, its order, its prompt, and an environment of named variables only."""

from __future__ import annotations

import os
import secrets
import sys
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from kingdom.base.disk.atomic import make_folder
from kingdom.base.disk.codec import read_bytes, to_json
from kingdom.base.errors import BadFile, BadName
from kingdom.base.home.manifests import Manifest
from kingdom.base.home.places import Places, check_name
from kingdom.base.records import notes
from kingdom.base.records.messages import Checkpoint, Task
from kingdom.base.records.soldiers import SoldierOrder
from kingdom.base.runtime.role import Services
from kingdom.court.soldiers import consent, engine_homes, engines, instructions, memory, neighbours, owner, prompt
from kingdom.court.soldiers.engines.base import Engine, NeedsSetUp, Surroundings
from kingdom.court.soldiers.handle import SoldierHandle
from kingdom.court.soldiers.results import BUDGETS

PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TERM", "USER", "LOGNAME", "SHELL", "PYTHONPATH")
"""What every soldier may see of our environment; a manifest's `env` and its engine add to it."""

ENGINE_VARIABLE = "KINGDOM_RUNTIME_ENGINE"
"""Names the engine of generals that name none, in the environment or in `.env`; it wins over the files."""

SECRETS_OF_OWNER = (
    *(".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".netrc", ".git-credentials", ".config/gh"),
    *(".config/gcloud", ".config/hub", ".config/glab-cli", ".config/git/credentials", ".config/op", ".config/sops"),
    *(".config/doctl", ".config/rclone", ".config/age", ".config/containers", ".config/helm", ".config/pypoetry"),
    *(".npmrc", ".yarnrc", ".yarnrc.yml", ".pypirc", ".pgpass", ".my.cnf", ".mylogin.cnf", ".s3cfg", ".boto"),
    *(
        ".cargo/credentials",
        ".cargo/credentials.toml",
        ".gem/credentials",
        ".m2/settings.xml",
        ".gradle/gradle.properties",
    ),
    *(".terraform.d/credentials.tfrc.json", ".terraformrc", ".vault-token", ".password-store", ".local/share/keyrings"),
    *(".bash_history", ".zsh_history", ".python_history", ".psql_history", ".mysql_history", ".sqlite_history"),
    *(".claude/.credentials.json", ".claude.json", ".codex/auth.json", ".local/share/opencode/auth.json"),
    *(".mozilla", ".config/google-chrome", ".config/chromium", ".thunderbird", ".oci", ".aliyun", ".fly", ".heroku"),
)
"""Where people keep keys and tokens in their own folder."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The engine that does a general's work."""

    #: Its name in the table ENGINES.
    name: str
    engine: Engine
    #: Path of the program that it starts.
    program: str
    #: Whose quota and money it uses.
    account: str


def choose_engine(services: Surroundings, manifest: Manifest) -> Chosen:
    """Return the engine of the manifest, else the default one. NeedsSetUp says what it lacks."""
    name = engine_name(services, manifest)
    try:
        engine = engines.load(name)
    except KeyError:
        why = f"the engine {name!r} of {manifest.name} is not there; its manifest can say `engine: command`"
        raise NeedsSetUp(why=why) from None
    return Chosen(name, engine, engine.program(services, manifest), engine.account(manifest.name))


def engine_name(services: Surroundings, manifest: Manifest) -> str:
    name = manifest.engine or default_engine(services)
    if manifest.supported_engines and name not in manifest.supported_engines:
        return manifest.supported_engines[0]
    return name


def default_engine(services: Surroundings) -> str:
    """Return the engine of generals that name none. `runtime.engine` is its name in other kingdoms' files."""
    named = os.environ.get(ENGINE_VARIABLE) or services.secrets.get(ENGINE_VARIABLE)
    system = services.system
    return named or str(system["runtime"]["engine"] or system["default_engine"])


def order(
    services: Services,
    manifest: Manifest,
    task: Task,
    asked: Checkpoint | None,
    soldier: SoldierHandle,
    chosen: Chosen,
    workspace: Path,
    left_usd: float | None = None,
) -> SoldierOrder:
    """Return all that the serving process needs, after writing the task and the prompt for the soldier.

    `asked` is what the task left behind whose question this one answers, if any.
    `left_usd` is what the run may cost by the budgets that are not the task's own.

    ConsentRefused when a person does not want the task done; NeedsSetUp when there is no prompt to be filled in.
    """
    places, engine = services.places, chosen.engine
    is_own = asked is not None and asked.target_general == manifest.name
    task, external = consent.task_and_trust(asked, manifest.name, task)
    task_file = soldier.control_folder / "task.json"
    make_folder(soldier.control_folder)
    made = basic_order(services, manifest, chosen, soldier, task.attempt, workspace, _limits(manifest, task), left_usd)
    may_read = [*made.may_read, str(task_file), *([str(places.checkpoint(str(task.original)))] if is_own else [])]
    made = made._replace(
        external=external and manifest.name not in services.config["trusted"],
        lasting=[str(workspace)],
        question=consent.question(manifest.name),
        env={**made.env, "KINGDOM_TASK_FILE": str(task_file)},
        session_id=_session_id(task),
        may_read=may_read,
    )
    if engine.is_model:
        own = engine_homes.of(places, manifest.name, task, made.session_id)
        made = with_home(services, manifest, own, engine, made)
        lent = memory.lend(services.unsynced, places, manifest.name, services.config["memory"]["largest_bytes"])
        made = made._replace(
            may_write=[*made.may_write, str(lent)],
            may_read=[*may_read, *map(str, instructions.lay(places, services.unsynced, manifest.name))],
            mcp=_tools(services, manifest, made.result_path),
        )
    written = _prompt(services, manifest, task, asked if is_own else None, chosen, made)
    services.unsynced.rewrite_all([(task_file, to_json(task.to_json())), (made.prompt, written.encode())])
    return made._replace(env={**made.env, **engine.environment(made)})


def basic_order(
    services: Services,
    manifest: Manifest,
    chosen: Chosen,
    soldier: SoldierHandle,
    attempt: int,
    workspace: Path,
    limits: Mapping[str, Any],
    left_usd: float | None,
) -> SoldierOrder:
    """Return what every soldier is started with, whose prompt is still to be written."""
    places, name = services.places, soldier_name(soldier.task, attempt)
    bounds = [bound for bound in (limits["budget_usd"], left_usd) if bound is not None]
    runtime = services.system["runtime"]
    git = owner.lay_git_config(places, services.unsynced, manifest, runtime, has_own_home=chosen.engine.is_model)
    return SoldierOrder(
        soldier=name,
        task_id=soldier.task,
        general=manifest.name,
        attempt=attempt,
        engine=chosen.name,
        account=chosen.account,
        program=chosen.program,
        workspace=str(workspace),
        prompt=str(places.prompt(soldier.task)),
        result_path=str(soldier.result_path),
        out=str(places.session_log(name, "out")),
        err=str(places.session_log(name, "err")),
        limits={**limits, "budget_usd": min(bounds, default=None), "reserved_mb": chosen.engine.reserves_mb},
        sandbox=manifest.sandbox,
        external=manifest.sandbox,
        question="",
        may_write=[str(workspace), str(soldier.folder)],
        may_not_read=may_not_read(places, manifest.name),
        may_read=[str(places.git_config(manifest.name)), *map(str, places.lent_to(manifest.name))],
        env={"TMPDIR": str(soldier.folder), **git},
        plugins=list(manifest.cc_plugins),
        settings=dict(runtime.get(chosen.name, {})),
        durability=services.system["durability"],
    )


def environment(services: Services, manifest: Manifest, soldier: SoldierHandle, engine: Engine) -> dict[str, str]:
    """Return the environment of the serving process: a soldier holds no token that it was not given."""
    granted = services.config["grants"].get(manifest.name, ())
    return environment_of(services, [*manifest.env, *granted, *engine.variables], soldier)


def environment_of(services: Services, names: Iterable[str], soldier: SoldierHandle) -> dict[str, str]:
    """Return the environment of a soldier: what every soldier gets, and these variables where set."""
    ours: Mapping[str, str] = ChainMap(dict(services.secrets), os.environ)
    passed = {name: ours[name] for name in (*PASSED_ON, *names) if name in ours}
    return {
        **passed,
        "PATH": f"{Path(sys.executable).parent}:{passed.get('PATH', '/usr/bin:/bin')}",
        "KINGDOM_HOME": str(services.places.home),
        "KINGDOM_BASE_DIR": str(services.places.home),
        "KINGDOM_TASK_ID": soldier.task,
        "KINGDOM_SOLDIER": soldier.task,
        "KINGDOM_RESULT_PATH": str(soldier.result_path),
        "GIT_CEILING_DIRECTORIES": str(services.places.home),  # where the home is a checkout, that is not their work
    }


def soldier_name(task: str, attempt: int) -> str:
    return f"soldier-{task}-{attempt}"


def _session_id(task: Task) -> str | None:
    """Return the session of its engine in which the task of an answer goes on."""
    session_id = task.payload.get("session_id")
    return session_id if task.type == "resume" and isinstance(session_id, str) and session_id else None


def with_home(
    services: Services, manifest: Manifest, own: engine_homes.EngineHome, engine: Engine, made: SoldierOrder
) -> SoldierOrder:
    """Return an order with a HOME for a model's program, made anew around its sessions.

    A session that this HOME does not know cannot be resumed: the prompt tells the whole matter without it.
    """
    known = made.session_id if made.session_id is not None and own.knows(made.session_id) else None
    own.empty(services.unsynced, engine.kept if known else (), ())
    engine_homes.make(own)
    engine.furnish(services, manifest, own.home)
    if (identity := owner.git_identity(services.system["runtime"])) is not None:
        owner.Furnishing(own.home).write(".gitconfig", identity)
    return made._replace(
        home=str(own.home),
        may_write=[*made.may_write, str(own.home)],
        env={**made.env, "HOME": str(own.home)},
        session_id=known,
        session_totals=own.totals(known) if known else {},
    )


def _tools(services: Services, manifest: Manifest, result_path: str) -> dict[str, dict[str, Any]]:
    """Return the MCP server that lets a model report, ask and remember, if the configuration wants it."""
    if not services.system["runtime"]["mcp"]:
        return {}
    env = {
        "KINGDOM_RESULT_PATH": result_path,
        "KINGDOM_LENT_MEMORY": str(services.places.lent_memory(manifest.name) / memory.LEARNED),
    }
    return {"kingdom": {"command": sys.executable, "args": ["-P", "-m", "kingdom.court.soldier.mcp"], "env": env}}


def _limits(manifest: Manifest, task: Task) -> dict[str, Any]:
    """Return the manifest's limits, with what earlier tries have left of the budgets."""
    left = {name: _left(manifest.limits[name], getattr(task, note)) for name, (note, _) in BUDGETS.items()}
    return {**manifest.limits, **left}


def _left(budget: float | None, spent: object) -> float | None:
    known = spent if isinstance(spent, int | float) else 0
    return None if budget is None else round(max(0, budget - known), 6)


def may_not_read(places: Places, general: str) -> list[str]:
    """Return what a general's soldiers may not read: of the home, of its owner's keys, and of others."""
    user = os.path.expanduser("~")
    others = neighbours.withheld(places.home, user, SECRETS_OF_OWNER)
    return [*map(str, places.withheld_from(general)), *_secrets_of_owner(user), *others]


@cache
def _secrets_of_owner(home: str) -> list[str]:
    """Return where the owner of this home folder keeps keys; a general that needs one is given it in its `env`."""
    return [f"{home}/{name}" for name in SECRETS_OF_OWNER]


def _prompt(
    services: Services, manifest: Manifest, task: Task, asked: Checkpoint | None, chosen: Chosen, made: SoldierOrder
) -> str:
    answers = asked if task.type == "resume" else None
    return prompt.write(
        _template(services, manifest, task, chosen.name),
        task,
        contract=prompt.CONTRACT.format(path=made.result_path) if chosen.engine.is_model else "",
        memory=memory.recall(services.places, manifest.name, task.repo),
        boundary=secrets.token_hex(8),
        largest_bytes=services.config["prompt"]["largest_bytes"],
        question=str(answers.question or "") if answers else "",
        first=_first_of(services, answers) if answers else None,
    )


def _first_of(services: Services, asked: Checkpoint) -> Checkpoint | None:
    """Return what its conversation began with, as far as that is still there; None when nothing can be read of it."""
    first = asked
    with suppress(FileNotFoundError, BadFile, BadName):
        first = notes.checkpoint(services.places, str(asked.thread_task_id))
    first = first if first.target_general == asked.target_general else asked
    return first if isinstance(first.payload, Mapping) else None


def _template(services: Services, manifest: Manifest, task: Task, engine: str) -> str:
    """Return the most specific prompt for this task: for its action and engine, its action, its engine, else for all.

    Packages of other kingdoms install theirs as `templates/<general>….md`.
    """
    package, templates = services.places.package(manifest.name), services.places.extras("templates")
    endings = list(_template_endings(task, engine))
    paths = [f"{package}/prompt{ending}.md" for ending in endings]
    paths += [f"{templates}/{manifest.name}{ending}.md" for ending in endings]
    path = next(filter(os.path.lexists, paths), f"{package}/prompt.md")
    try:
        return read_bytes(path).decode("utf-8")
    except FileNotFoundError:
        raise NeedsSetUp(why=f"{path} is not there") from None
    except (BadFile, UnicodeDecodeError) as error:
        raise NeedsSetUp(why=f"{path}: {error}") from None


def _template_endings(task: Task, engine: str) -> Iterator[str]:
    for action in filter(None, (task.payload.get("action"), task.type.rpartition(".")[2])):
        with suppress(BadName):
            name = check_name("action", action)
            yield from (f"-{name}-{engine}", f"-{name}")
            break
    yield from (f"-{engine}", "")
