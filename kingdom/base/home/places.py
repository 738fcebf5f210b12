"""Every path under the home. The only file that spells the name of a folder."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from kingdom.base.disk.atomic import names_in
from kingdom.base.disk.codec import json_kind
from kingdom.base.errors import BadHome, BadName
from kingdom.base.home.states import MOVES

LONGEST_NAME = 200
PROGRAM = "run"
"""The executable in a general's package."""
AGENT = "council-"
"""How the names of the council's soldiers begin; the agent's name follows."""
RAW_RESULT, CHECKPOINT, SESSION_ID, SOLDIER_ID = "-raw.json", "-checkpoint.json", "-session-id", "-soldier-id"
BESIDE_RESULTS = (RAW_RESULT, CHECKPOINT, SESSION_ID, SOLDIER_ID)
"""How the names of files end that lie beside results, each after its task's id."""
_PACKAGE = Path(__file__).resolve().parents[2]
LONGEST_FOREIGN = 150
_FOREIGN = re.compile(r"[^A-Za-z0-9._-]")
_COPY_OF_ENV = re.compile(r"\.env.+|.*\.env|env\..*", re.DOTALL)
_NAME = re.compile(r"[A-Za-z0-9_:@+-][A-Za-z0-9._:@+-]*\Z")


def check_name(what: str, name: object) -> str:
    """Return a name that can stand as one part of a path; BadName for any other: names are never changed to fit."""
    if not isinstance(name, str):
        why = f"{json_kind(name)}, not a text"
    elif not name:
        why = "empty"
    elif len(name) > LONGEST_NAME:
        why = f"{len(name)} characters"
        name = f"{name[:40]}…"
    elif name.startswith("."):
        why = "it starts with a dot"
    elif not _NAME.match(name):
        why = "a character that is not allowed"
    else:
        return name
    raise BadName(what=what, name=name, why=why)


def as_filename(text: str) -> str:
    """Return a name from outside as part of a file name: odd characters by code point, a long rest by a digest."""
    plain = _FOREIGN.sub(lambda found: f"+{ord(found[0]):x}+", text)
    if len(plain) <= LONGEST_FOREIGN:
        return plain
    from hashlib import sha256

    digest = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{plain[: LONGEST_FOREIGN - 17]}-{digest}"


def _paths_in(file: Path) -> list[Path]:
    """Return the paths in a list, one in each line; none when there is no such file, or another user owns it."""
    try:
        return [Path(os.fsdecode(line)) for line in file.read_bytes().splitlines() if line]
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []


@lru_cache(maxsize=512)
def _inside(folder: Path, *names: str) -> Path:
    """Return a path in a folder. Kept: making a Path costs more than looking at its file."""
    return folder.joinpath(*names)


def is_hidden(name: str) -> bool:
    """Return whether readers ignore a name: under such names something is still being written."""
    return name.startswith(".") or name.endswith(".tmp")


def find_data() -> Path:
    """Return the folder of schemas, default configuration and shipped generals: in the wheel, or in the checkout."""
    packed = _PACKAGE / "data"
    return packed if packed.is_dir() else _PACKAGE.parent


def find_schema(name: str) -> Path:
    return find_data() / "schemas" / f"{name}.schema.json"


def find_codec() -> Path:
    """Return the program that writes, reads and edits messages of the council."""
    return find_data() / "scripts" / "lib" / "ignite_mime.py"


def named_home() -> Path | None:
    """Return the home that the environment names."""
    named = os.environ.get("KINGDOM_HOME") or os.environ.get("KINGDOM_BASE_DIR")
    return Path(os.path.expanduser(named)).resolve() if named else None


def find_home() -> Path:
    """Return $KINGDOM_HOME, $KINGDOM_BASE_DIR, the nearest folder around us that is a home, or the checkout.

    A leading `~` is the user's folder: shells leave it in quotes, and behind `make HOME_DIR=`. Links are followed:
    soldiers are known by the one true path of their home.
    """
    if (named := named_home()) is not None:
        return named
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / "config").is_dir() and (folder / "queue").is_dir():
            return folder
    checkout = _PACKAGE.parent
    if (checkout / "pyproject.toml").is_file():
        return checkout
    raise BadHome(path=here, why="no config/ and queue/ here; run `kingdom init FOLDER` and set KINGDOM_HOME")


def home_of_config(file: Path) -> Path | None:
    """Return the home whose config/ a file lies in; None when it lies elsewhere. A home may be so new that there is
    nothing in it but its config/mq.yaml."""
    config = file.absolute().parent
    is_new = file.name == "mq.yaml" and not (config / "queue").exists()
    is_home = config.name == "config" and (is_new or (config.parent / "queue").is_dir())
    return config.parent if is_home else None


def _has_others(gid: int) -> bool:
    """Return whether a group is not the one that its only user has to himself."""
    import grp  # rarely asked
    import pwd

    try:
        user, group = pwd.getpwuid(os.geteuid()).pw_name, grp.getgrgid(gid)
    except KeyError:
        return True
    return group.gr_name != user or any(member != user for member in group.gr_mem)


class Places:
    """The paths of one home."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.config = home / "config"
        self.default_config = self.config / "default"
        self.manifests = self.config / "generals"
        self.packages = home / "generals"
        self.env_file = home / ".env"
        self.queue = home / "queue"
        self.state = home / "state"
        self.logs = home / "logs"
        self.memory = home / "memory"
        self.workspaces = home / "workspace"
        #: The folders of the council's agents. `find` does not follow a link, so it is real here, and linked in queue/.
        self.council = self.workspaces / "queue"
        self.council_link = self.queue / "council"
        self.dead_letters = self.council / "dead_letter"
        self.results = self.state / "results"
        self.prompts = self.state / "prompts"
        self.soldiers = self.state / "soldiers"
        self.sessions = self.state / "sessions.json"
        self.budgets = self.state / "purse.json"
        self.metrics = self.own("chamberlain") / "kingdom.prom"
        self.ledger = self.own("chamberlain") / "ledger.json"
        self.resources = self.state / "resources.json"
        self.dashboard = self.state / "dashboard.json"
        self.watchers = self.own("sentinel") / "watchers.json"
        self.neighbours = self.own("chamberlain") / "neighbours"
        self.run = self.state / "run"
        self.wanted_folder = self.run / "wanted"
        self.launch_lock = self.run / "launch.lock"
        self.last_launcher = self.run / "launcher"
        self.launch_scratch = self.run / "tmp"
        self.roles_socket = self.run / "roles.sock"
        self.supervisor_socket = self.run / "supervisor.sock"
        self.supervisor_folder = self.run / "supervisor.d"
        self.supervisor_pid = self.run / "supervisord.pid"
        self.supervisor_conf = self.run / "supervisord.conf"
        self.supervisor_log = self.run / "supervisord.log"
        self.ended_sessions = self.run / "ended-sessions.json"
        self.system_log = self.logs / "system.log"
        self.events_log = self.logs / "events.log"
        self.session_logs = self.logs / "sessions"
        self.analysis = self.logs / "analysis"
        self.mailbox = self.queue / "mailbox"
        self.mq = self.queue / "mq"
        self.topics = self.queue / "topics"
        self.hall = self.state / "hall"
        self._folders = {(kind, state): self.queue / kind / state for kind, states in MOVES.items() for state in states}

    def folder(self, kind: str, state: str) -> Path:
        """Return queue/<kind>/<state>, which holds files <id>.json."""
        return self._folders[kind, state]

    def queue_file(self, kind: str, state: str, name: str) -> Path:
        return self._folders[kind, state] / f"{check_name(kind, name)}.json"

    def own(self, role: str) -> Path:
        """Return the state folder of a role; only that role writes there."""
        return _inside(self.state, check_name("role", role))

    def scratch(self, role: str) -> Path:
        return self.own(role) / "tmp"

    def topic_scratch(self, role: str) -> Path:
        """Return where a role's unfinished batches of topics lie."""
        return self.own(role) / "topics"

    def worker_snapshot(self, role: str) -> Path:
        """Return the path of a hall worker's snapshot."""
        return self.own(role) / "worker.json"

    def worker_snapshots(self) -> list[Path]:
        """Return the snapshots of all workers, sorted by role."""
        roles = sorted(name for name in names_in(self.state) if name.startswith("worker"))
        return [path for role in roles if os.path.lexists(path := self.state / role / "worker.json")]

    def gateway_port(self, role: str) -> Path:
        """Return the path of the port that a gateway has found for itself."""
        return self.own(role) / "port"

    def gateway_figures(self, role: str) -> Path:
        """Return the path of a gateway's counts."""
        return self.own(role) / "figures.json"

    def gateways_figures(self) -> list[Path]:
        """Return the counts of all gateways, sorted by role."""
        return sorted(self.state.glob("gateway*/figures.json"))

    def heartbeat(self, role: str) -> Path:
        return self.own(role) / "heartbeat"

    def lock(self, role: str) -> Path:
        return self.own(role) / "lock"

    def role_log(self, role: str) -> Path:
        return self.logs / f"{check_name('role', role)}.log"

    def manifests_in_use(self, role: str) -> Path:
        """Return a role's note of the manifests that it has taken over."""
        return self.own(role) / "manifests.json"

    def accepted(self, role: str) -> Path:
        """Return a role's folder of the configuration that it accepted last."""
        return self.own(role) / "accepted"

    def refused(self, role: str) -> Path:
        """Return a role's note of the configuration that it could not start with."""
        return self.own(role) / "refused.json"

    def roll_call(self, watcher: str) -> Path:
        """Return what the watcher of roles notes of those that stay down."""
        return self.own(watcher) / "roll-call.json"

    def wanted(self, role: str) -> Path:
        """Return the file that says `down`, `quarantined` or, of a general, `uninstalled` if a role shall not run."""
        return self.wanted_folder / check_name("role", role)

    def restart(self, role: str) -> Path:
        """Return the file by which an owner asks for one restart of a role. No role has a dot in its name."""
        return self.wanted_folder / f"{check_name('role', role)}.restart"

    def starts(self, role: str) -> Path:
        """Return the list of recent starts that bin/role keeps."""
        return self.run / f"{check_name('role', role)}.starts"

    def last_words(self, role: str) -> Path:
        """Return the file for what a role without a terminal prints before its own log is open."""
        return self.logs / f"{check_name('role', role)}.out"

    def supervisor_program(self, role: str) -> Path:
        return self.supervisor_folder / f"{check_name('role', role)}.conf"

    def result(self, task: str) -> Path:
        return self.results / f"{check_name('task', task)}.json"

    def raw_result(self, task: str) -> Path:
        return self.results / f"{check_name('task', task)}{RAW_RESULT}"

    def checkpoint(self, task: str) -> Path:
        return self.results / f"{check_name('task', task)}{CHECKPOINT}"

    def session_id(self, task: str) -> Path:
        """Return the file with the id of the engine's session in which a task can go on."""
        return self.results / f"{check_name('task', task)}{SESSION_ID}"

    def soldier_id(self, task: str) -> Path:
        """Return the file with the name of the soldier that worked on a task last."""
        return self.results / f"{check_name('task', task)}{SOLDIER_ID}"

    def installed_generals(self) -> list[str]:
        """Return the generals that have a manifest, by the names of files alone: right even when one is broken."""
        manifests = (name for name in names_in(self.manifests) if name.startswith("gen-") and name.endswith(".yaml"))
        return sorted(name.removesuffix(".yaml") for name in manifests)

    def asking_tasks(self) -> list[str]:
        """Return the tasks that have left a checkpoint, in no order."""
        names = os.listdir(self.results)
        tasks = (name.removesuffix(CHECKPOINT) for name in names if name.endswith(CHECKPOINT))
        return [task for task in tasks if _NAME.match(task)]

    def answered(self, task: str) -> Path:
        """Return where the king notes whose answer to a task's question he took."""
        return self.answers / f"{check_name('task', task)}.json"

    @property
    def version(self) -> Path:
        """The note of which form this home has."""
        return self.state / "home.json"

    @property
    def is_there(self) -> bool:
        """Whether a home is here, of any age."""
        try:
            return self.version.exists() or (self.config.is_dir() and self.queue.is_dir())
        except OSError:
            return False

    @property
    def set_aside(self) -> Path:
        """Where `kingdom fsck --repair` puts what is in the way."""
        return self.state / "set-aside"

    @property
    def replay_index(self) -> Path:
        """The king's list of which event became which task."""
        return self.own("king") / "done.idx"

    def posting(self) -> list[Path]:
        """Return the folders of the envoy's notes about messages that it posts."""
        return [self.own("envoy") / name for name in ("intents", "receipts")]

    def scratches(self) -> list[Path]:
        """Return the folders in which writers keep their unfinished files."""
        return sorted(self.state.glob("*/tmp"))

    def copies_of_env(self) -> list[Path]:
        """Return files that people may have made of `.env`."""
        return [self.home / name for name in names_in(self.home) if _COPY_OF_ENV.fullmatch(name)]

    def secrets(self) -> list[Path]:
        """Return the files that hold secrets, or may."""
        return [self.env_file, *self.copies_of_env(), *self.keys(), *self.state.glob("*/*.db*")]

    def keys(self) -> list[Path]:
        """Return the files in which roles keep secrets of their own."""
        return list(self.state.glob("*/*secret*"))

    @property
    def answers(self) -> Path:
        """The folder of the notes about answers."""
        return self.own("king") / "answered"

    @property
    def seen(self) -> Path:
        """The folder in which the sentinel marks the events that it has made."""
        return self.own("sentinel") / "seen"

    def conversations(self) -> list[Path]:
        """Return the files in which the envoy keeps open threads, questions that wait, and conversations."""
        return [self.threads, self.questions, self.own("envoy") / "conversation-threads.json"]

    @property
    def threads(self) -> Path:
        """In which thread each task speaks."""
        return self.own("envoy") / "thread-mappings.json"

    @property
    def questions(self) -> Path:
        """In which thread each question waits for its answer."""
        return self.own("envoy") / "awaiting-responses.json"

    @property
    def cleanup(self) -> Path:
        """What the chamberlain says of its last cleaning."""
        return self.own("chamberlain") / "cleanup.json"

    @property
    def cleanup_request(self) -> Path:
        """The file by which the command line asks the chamberlain to clean up."""
        return self.own("cli") / "cleanup-request.json"

    def cancelled(self, task: str) -> Path:
        """Return where the king notes who gave a task up while its general was at it."""
        return self.own("king") / "cancelled" / f"{check_name('task', task)}.json"

    def stopped_by_down(self, task: str) -> Path:
        """Return the command line's note of which soldier of a task `down --soldiers` has ended."""
        return self.own("cli") / "called-back" / f"{check_name('task', task)}.json"

    def prompt(self, task: str) -> Path:
        return self.prompts / f"{check_name('task', task)}.md"

    def soldier_folder(self, task: str) -> Path:
        return self.soldiers / check_name("task", task)

    def control_folder(self, general: str, task: str) -> Path:
        """Return where a general notes what it knows of a soldier, out of the soldier's reach."""
        return self.own(general) / "camp" / check_name("task", task)

    def control_folders(self, *, generals_alone: bool = False) -> list[Path]:
        """Return those of all generals, and of other roles that start soldiers, sorted by task."""
        roles = [name for name in names_in(self.state) if not generals_alone or name.startswith("gen-")]
        camps = [_inside(self.state, name, "camp") for name in roles]
        return sorted((camp / task for camp in camps for task in names_in(camp)), key=lambda folder: folder.name)

    def locks(self) -> Iterator[Path]:
        """Yield the lock files of all roles and of what they share, whether they exist or not."""
        yield from (self.launch_lock, self.sessions.with_suffix(".lock"), self.budgets.with_suffix(".lock"))
        yield from (_inside(self.state, name, "lock") for name in names_in(self.state))

    def withheld_from(self, general: str) -> Iterator[Path]:
        """Yield what a general's soldiers may not read: secrets, tasks' work and output, and all of state/ and queue/.

        What `lent_to` names, and what is a soldier's own in these folders, it is allowed besides. So a folder that
        nobody has thought of is no leak.
        """
        yield self.state
        yield self.queue
        yield from (self.workspaces, self.session_logs)
        yield from (path for path in self.copies_of_env() if path.is_file())
        yield from self.known_backups()
        memories = self.memory / "generals"
        yield from (memories / name for name in names_in(memories) if name != general)

    def git_config(self, general: str) -> Path:
        """Return what git reads in a general's soldiers in place of the machine's configuration."""
        return self.own(general) / "gitconfig"

    def lent_to(self, general: str) -> Iterator[Path]:
        """Yield what a general's soldiers may read of state/ and queue/, although the rest is withheld."""
        yield from (self.queue / kind for kind in MOVES)
        yield from (self.version, self.resources, self.dashboard, self.sessions, self.own("king") / "schedules.json")
        yield self.mirrors(general)
        yield from (_inside(self.state, name, "heartbeat") for name in names_in(self.state))

    @property
    def backups(self) -> Path:
        """The list of the files that `kingdom backup` has written, one path in each line."""
        return self.own("cli") / "backups"

    def known_backups(self) -> list[Path]:
        """Return the files that `kingdom backup` has written, wherever they are."""
        return _paths_in(self.backups)

    def known_neighbours(self) -> list[Path]:
        """Return the other homes that have been seen at work, and the backups of all of them."""
        return _paths_in(self.neighbours)

    def mirrors(self, general: str) -> Path:
        return self.own(general) / "mirrors"

    def engine_home(self, general: str, thread: str) -> Path:
        """Return where the engine of a conversation's soldiers keeps its sessions."""
        return self.own(general) / "homes" / check_name("task", thread)

    def extras(self, kind: str) -> Path:
        """Return the folder in which packages of other kingdoms install their templates, agents or skills."""
        return self.home / kind

    def workspace(self, general: str, task: str) -> Path:
        return self.workspaces / check_name("general", general) / check_name("task", task)

    def session_log(self, soldier: str, stream: str) -> Path:
        return self.session_logs / f"{check_name('soldier', soldier)}.{stream}"

    def lent_memory(self, general: str) -> Path:
        """Return the copy of a general's memory that its soldiers may write, where its workspaces see it."""
        return self.workspaces / "memory" / "generals" / check_name("general", general)

    @property
    def lent_shared_memory(self) -> Path:
        """A link to what all generals share, where workspaces see it."""
        return self.workspaces / "memory" / "shared"

    def manifest(self, general: str) -> Path:
        return self.manifests / f"{check_name('general', general)}.yaml"

    @property
    def installer(self) -> Path:
        """The command by which packages of other kingdoms install themselves."""
        return self.home / "bin" / "install-general.sh"

    @property
    def codec(self) -> Path:
        """The link to the program that writes, reads and edits messages of the council."""
        return self.home / "scripts" / "lib" / "ignite_mime.py"

    def package(self, general: str) -> Path:
        return self.packages / check_name("general", general)

    def agent(self, name: str) -> Path:
        """Return the folder in which messages wait for an agent of the council."""
        return self.council / check_name("agent", name)

    def told(self, agent: str) -> Path:
        """Return the folder of the messages that an agent of the council has been told of, or is about to be."""
        return self.agent(agent) / "processed"

    def agent_turn(self, agent: str) -> Path:
        """Return where the council notes what an agent is doing: the control folder of its soldier."""
        return self.control_folder("council", AGENT + check_name("agent", agent))

    @property
    def agent_turns(self) -> Path:
        return self.control_folder("council", "any").parent

    def outbox(self, agent: str) -> Path:
        """Return the folder into which an agent in its sandbox writes what it sends."""
        return self.outboxes / check_name("agent", agent)

    @property
    def outboxes(self) -> Path:
        return self.own("council") / "outboxes"

    @property
    def postings(self) -> Path:
        """The folder of messages of outboxes, by addressee, on their way into the queue."""
        return self.own("council") / "posting"

    @property
    def council_goals(self) -> Path:
        """The folder in which a general notes the goals that it has given the council, by thread."""
        return self.own("gen-council") / "goals"

    def council_goal(self, thread: str) -> Path:
        return self.council_goals / f"{check_name('thread', thread)}.json"

    @property
    def council_news(self) -> Path:
        """The folder in which the council notes what a goal's general has to know: its plan, and its end."""
        return self.own("council") / "news"

    def council_plan(self, thread: str) -> Path:
        """Return the council's note of a plan that waits for a person's yes."""
        return self.council_news / f"{check_name('thread', thread)}-plan.json"

    def council_end(self, thread: str) -> Path:
        """Return the council's note of how a thread ended."""
        return self.council_news / f"{check_name('thread', thread)}-end.json"

    @property
    def deliverables(self) -> Path:
        """The folder of what the council has made for people, by task."""
        return self.workspaces / "deliverables"

    @property
    def council_threads(self) -> Path:
        """The folder of the council's list of messages by thread."""
        return self.own("council") / "threads"

    @property
    def council_figures(self) -> Path:
        """The council's counts."""
        return self.own("council") / "figures.json"

    def general_memory(self, general: str) -> Path:
        return self.memory / "generals" / check_name("general", general)

    def folders(self) -> Iterator[Path]:
        """Return the folders that a home needs before its first role starts."""
        yield from (self.config, self.manifests, self.queue, self.state, self.logs, self.memory)
        yield from (self.workspaces, self.results, self.prompts, self.soldiers, self.run, *self.folders_of_products())
        yield from (self.wanted_folder, self.session_logs, self.memory / "shared", self.memory / "generals")
        for kind, states in MOVES.items():
            yield from (self.folder(kind, state) for state in states)

    def folders_of_products(self) -> list[Path]:
        from kingdom import wings  # a soldier does without

        return [self.home / folder for wing in wings.rows() for folder in wing.folders]

    def check(self) -> None:
        """Raise BadHome when others could write here, or when it belongs to somebody else."""
        about = self.check_owner()
        if about.st_mode & stat.S_IWGRP and _has_others(about.st_gid):
            raise BadHome(path=self.home, why="its group may write to it; run `chmod g-w` on it")
        if about.st_mode & stat.S_IWOTH:
            raise BadHome(path=self.home, why="everybody may write to it; run `chmod o-w` on it")
        for folder in (self.queue, self.state):
            if folder.is_dir() and not os.access(folder, os.W_OK):
                raise BadHome(path=folder, why="it is read-only")

    def check_owner(self) -> os.stat_result:
        """Return what the home is like; BadHome when there is none or it is somebody else's, also for root."""
        about = self.check_there()
        if about.st_uid != os.geteuid():
            raise BadHome(path=self.home, why=f"it belongs to uid {about.st_uid}, and this is uid {os.geteuid()}")
        return about

    def check_there(self) -> os.stat_result:
        """Return what the home is like; BadHome when it is no folder."""
        try:
            about = os.stat(self.home)
        except (FileNotFoundError, NotADirectoryError):
            raise BadHome(path=self.home, why="it does not exist; run `kingdom init` first") from None
        if not stat.S_ISDIR(about.st_mode):
            raise BadHome(path=self.home, why="it is not a folder")
        return about
