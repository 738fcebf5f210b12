"""One message as the council sees it: where it lies, what its headers say, and what is wrong with it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path

from kingdom.base.errors import BadMessage
from kingdom.base.times import moment
from kingdom.council import mime
from kingdom.council.bodies import faults_of_body, read_body

_NAME = re.compile(r".+_(\d{16})\.mime\Z", re.DOTALL)
NEW = ("", "queued")
ENDS = ("task_completed", "evaluation_result")
LATEST = 9_999_999_999
"""The last second whose microseconds have 16 digits."""
NORMAL = mime.PRIORITIES.index("normal")
BEGINNINGS = ("user_goal", "github_event", "github_task", "system_init", "slack_event", "slack_task")
"""Types that come from outside of the team: one that names no thread and answers nothing begins a thread."""


@dataclass(frozen=True, slots=True)
class CouncilMessage:
    """A file of an agent's folder, as it was when it was read."""

    #: Its file, in the agent's folder or in processed/ there.
    path: Path
    #: Whose folder that is.
    agent: str
    #: All that it holds.
    raw: bytes
    type: str
    sender: str
    to: list[str]
    #: queued, processing, delivered, retrying, error, completed, dead_letter or another word; "" for none.
    status: str
    #: critical, high, normal or low; another word counts as normal.
    priority: str
    #: Its thread: the one that it names, or its own id where it begins one.
    thread: str
    #: Whether it names no thread itself.
    names_no_thread: bool
    id: str
    in_reply_to: str
    repository: str
    issue: str
    #: How often it has been told again.
    retries: int
    #: It is not retried before this time.
    not_before: float
    #: When it failed last.
    failed_at: float
    #: What its agent says went wrong.
    error: str
    body: str

    @property
    def rank(self) -> tuple[int, str, str]:
        """What messages are told in order of: priority, age, name."""
        found = _NAME.match(self.path.name)
        urgency = mime.PRIORITIES.index(self.priority) if self.priority in mime.PRIORITIES else NORMAL
        return urgency, found[1] if found else "", self.path.name

    @property
    def named_at(self) -> float:
        """The moment in its name, in seconds since the epoch."""
        found = _NAME.match(self.path.name)
        return int(found[1]) / 1_000_000 if found else 0.0

    @property
    def about(self) -> str:
        """What it is about, as far as its body says."""
        return self._first("title", "goal", "summary", "question", "task_id")

    @property
    def task(self) -> str:
        """The task of a plan that it is about; "" when it is about none."""
        return self._first("task_id")

    @property
    def outcome(self) -> str:
        """How the work or the evaluation ended that it tells of; "" when it tells of none."""
        return self._first("overall_status", "verdict", "status") if self.type in ENDS else ""

    def _first(self, *keys: str) -> str:
        """Return the first of these fields that its body has."""
        try:
            body = read_body(self.body)
        except BadMessage:
            return ""
        return next((str(body[key]) for key in keys if body.get(key)), "")


def read_message(path: Path, agent: str, raw: bytes) -> CouncilMessage:
    """Return the message that a file holds, whatever may be wrong with it."""
    found = mime.parse_message(raw.decode("utf-8", "replace"))
    texts = {key: value for key, value in found.items() if isinstance(value, str)}
    retries = texts.get("retry_count", "")
    begins = texts["type"] in BEGINNINGS and not texts["in_reply_to"]
    return CouncilMessage(
        path,
        agent,
        raw,
        texts["type"],
        texts["from"],
        [*found["to"], *found["cc"]],
        texts["status"].lower(),
        texts["priority"].lower(),
        texts["thread_id"] or (texts["message_id"].strip("<>") if begins else ""),
        not texts["thread_id"],
        texts["message_id"],
        texts["in_reply_to"],
        texts["repository"],
        texts["issue"],
        int(retries) if retries.isascii() and retries.isdigit() and len(retries) < 7 else 0,
        _moment(texts.get("next_retry_after", "")),
        _moment(texts.get("error_at", "")),
        texts.get("error_reason", ""),
        texts["body"],
    )


def faults_of(message: CouncilMessage) -> list[str]:
    """Return why a message cannot be told to the agent in whose folder it lies; none for a good one."""
    found = mime.faults(message.raw, _is_no_mapping, names_too=False)
    if not found and message.agent not in map(mime.folder_of, message.to):
        found.append(f"it is addressed to {', '.join(message.to)}, not to {message.agent}")
    return found


def faults_of_sent(message: CouncilMessage) -> list[str]:
    """Return why a message may not be sent on from an outbox, whoever it is from."""
    return mime.faults(message.raw, _is_no_mapping)


def remarks_on(message: CouncilMessage) -> list[str]:
    """Return what is odd about a good message, which is told all the same."""
    return [*mime.faults(message.raw, faults_of_body), *mime.warnings(message.raw)]


def is_well_named(name: str) -> bool:
    return _NAME.match(name) is not None and name.isprintable()


def name_of(message: CouncilMessage) -> str:
    """Return the name that a message gets whose own does not fit: its type and its Date in microseconds."""
    kind = message.type if re.fullmatch(r"[a-z0-9_]{1,60}", message.type, re.IGNORECASE) else "message"
    date = str(mime.parse_message(message.raw.decode("utf-8", "replace"))["date"])
    try:
        seconds = min(max(0, int(parsedate_to_datetime(date).timestamp())), LATEST)
    except (ValueError, OverflowError):
        seconds = 0
    return f"{kind}_{seconds * 1_000_000:016d}.mime"


def next_name(name: str) -> str:
    """Return the name a microsecond later, for the case that one is taken."""
    found = _NAME.match(name)
    assert found is not None
    return f"{name[: found.start(1)]}{(int(found[1]) + 1) % 10**16:016d}.mime"


def _is_no_mapping(_kind: str, body: str) -> list[str]:
    try:
        read_body(body)
    except BadMessage as error:
        return [str(error)]
    return []


def _moment(stamped: str) -> float:
    try:
        return moment(stamped)
    except (ValueError, OverflowError):
        return 0.0
