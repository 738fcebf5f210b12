"""The files between a general and a serving process: the order, its start, the report.

Named tuples, because that process loads this module and starts in milliseconds: the standard library only, and no
`dataclasses`. Annotations that are evaluated at once load faster than texts. Some keys are called differently on disk.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Self

ON_DISK = {"program": "executable", "exit_code": "code", "output_tail": "seen", "missing_sandbox": "lacking"}
"""Fields by the keys that they have in files."""

BY_ITSELF, STOPPED, OVER_LIMIT, NEVER_RAN = "by itself", "told to", "resource", "never ran"
"""How an engine's run ended, as `RawReport.ended` says it."""

CONSENT = "consent"
"""What a report and its checkpoint ask for, when a person must allow work without a sandbox."""

Json = Mapping[str, Any]


class SoldierOrder(NamedTuple):
    """What a soldier is started with: `order.json` in its control folder, schema `soldier-order`."""

    #: The soldier's name: its task and its try.
    soldier: str
    #: The task that it works on.
    task_id: str
    #: Whose soldier it is.
    general: str
    #: Tries of the task that have failed before this one.
    attempt: int
    #: The engine's name in the table ENGINES.
    engine: str
    #: Whose quota and money it uses.
    account: str
    #: Path of the program that the engine starts.
    program: str
    #: Path of its working directory.
    workspace: str
    #: Path of the prompt, which stands on its standard input.
    prompt: str
    #: Where it writes its result.
    result_path: str
    #: Path of the log of its standard output.
    out: str
    #: Path of the log of its standard error.
    err: str
    #: The manifest's `limits`, and as `reserved_mb` what its program reserves besides.
    limits: Json
    #: Whether it runs in a sandbox.
    sandbox: bool
    #: Whether its text comes from outside and nobody has consented to less than a whole sandbox.
    external: bool
    #: What a person is asked when it needs their consent.
    question: str
    #: Folders that it may write in.
    may_write: Sequence[str]
    #: Files and folders that it may not read.
    may_not_read: Sequence[str]
    #: Variables of its environment, beside those of the process that serves it.
    env: Mapping[str, str]
    #: The session to resume, when its task is the answer to a question.
    session_id: str | None = None
    #: The manifest's plug-ins, for an engine that has such.
    plugins: Sequence[str] = ()
    #: Files that it may read although they lie in a folder that it may not read.
    may_read: Sequence[str] = ()
    #: Folders whose files it may read and delete, and nothing more.
    may_remove: Sequence[str] = ()
    #: Those of the folders that it may write in that outlive the run, and hold more than its own work.
    lasting: Sequence[str] = ()
    #: What follows the program of an engine that has no arguments of its own.
    arguments: Sequence[str] = ()
    #: HOME of the engine's program; None when it has none of its own.
    home: str | None = None
    #: What `runtime` of system.yaml says of this engine.
    settings: Json = MappingProxyType({})
    #: What the session to be resumed has used so far, where the engine counts only that.
    session_totals: Mapping[str, float] = MappingProxyType({})
    #: MCP servers that the engine may start, by name: command, args, env.
    mcp: Mapping[str, Json] = MappingProxyType({})
    #: Whether its report is to survive a power cut, as `durability` of system.yaml says.
    durability: Literal["power", "process"] = "power"

    @classmethod
    def from_json(cls, value: Json) -> Self:
        return cls(**_from_json(cls._fields, value))

    def to_json(self) -> dict[str, Any]:
        return _to_json(self._asdict())


class RawReport(NamedTuple):
    """What the serving process reports when a soldier has ended: `<task>-raw.json`, schema `raw-report`."""

    #: The try that it is about.
    attempt: int
    #: The task that it is about.
    task_id: str = ""
    #: How the engine's run ended: one of the four words above.
    ended: str | None = None
    #: The engine's exit code; None when it was ended or never ran.
    exit_code: int | None = None
    #: The end of what the engine printed, or why it was ended.
    output_tail: str = ""
    #: The result as the engine wrote it, not checked yet.
    result: Json | None = None
    #: What this kernel lacks for a whole sandbox.
    missing_sandbox: str | None = None
    #: How long it took.
    seconds: float | None = None
    #: CONSENT when a person must allow work without a sandbox.
    asks: str | None = None

    @classmethod
    def from_json(cls, value: Json) -> Self:
        return cls(**_from_json(cls._fields, value))

    def to_json(self) -> dict[str, Any]:
        return _to_json(self._asdict())


class Started(NamedTuple):
    """A general's note of a soldier that it has started: `started` in the control folder."""

    #: The serving process.
    pid: int
    #: Its start in clock ticks after boot: with the pid it names one process for good.
    start: int
    #: The try that it was started for.
    attempt: int
    #: For how many seconds the machine had been suspended since its boot; None in older notes.
    slept: float | None = None
    #: When the try began, in seconds after boot; None in older notes: with its process.
    begun: float | None = None

    @classmethod
    def from_json(cls, value: Json) -> Self:
        """Return the note; KeyError, TypeError or ValueError for a damaged one."""
        times = (None if (time := value.get(name)) is None else float(time) for name in ("slept", "begun"))
        return cls(int(value["pid"]), int(value["start"]), int(value["attempt"]), *times)

    def to_json(self) -> dict[str, Any]:
        return self._asdict()


class Stopping(NamedTuple):
    """A general's note that it has asked a soldier to end: `stopping` in the control folder."""

    #: The reason, in words.
    why: str
    #: When, in seconds since the epoch.
    since: float

    @classmethod
    def from_json(cls, value: Json) -> Self:
        """Return the note; KeyError, TypeError or ValueError for a damaged one."""
        return cls(str(value["why"]), float(value["since"]))

    def to_json(self) -> dict[str, Any]:
        return self._asdict()


def _from_json(fields: Sequence[str], value: Json) -> dict[str, Any]:
    keys = {field: ON_DISK.get(field, field) for field in fields}
    return {field: value[key] for field, key in keys.items() if key in value}


def _to_json(fields: dict[str, Any]) -> dict[str, Any]:
    return {ON_DISK.get(field, field): _plain(part) for field, part in fields.items()}


def _plain(part: Any) -> Any:
    return dict(part) if isinstance(part, MappingProxyType) else part
