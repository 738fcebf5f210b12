#!/usr/bin/env python3
"""Write, read and edit the council's messages: MIME headers, a blank line, a YAML body.

One file of the standard library that also works where it is copied alone. It loads what Python has loaded anyway, the
rest where it is needed: agents and shell scripts call it for every message, and wait for it to start.
"""

from __future__ import annotations

import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    Parsed = dict[str, str | list[str]]
    Judge = Callable[[str, str], list[str]]

PROGRAM = "ignite_mime"
USAGE = """\
usage: ignite_mime.py COMMAND ...

  build --from A --to A... --type T [--cc A...] [--priority P] [--thread-id ID] [--in-reply-to ID]
        [--repo R] [--issue N] [--status S] [--body TEXT | --body-file FILE|-] [-o FILE]
                                       write a message, to stdout without -o
  parse FILE                           show headers and body as JSON
  extract-body FILE                    show the body as it is
  update-status FILE STATUS [--processed-at TIME] [--extra NAME=VALUE...]
  update-header FILE NAME VALUE        replace a header, or add it as the last one
  remove-header FILE NAME
  validate FILE...                     one line for each fault
  send (options of build, without -o) [--reply-to FILE] [--once KEY] [--queue FOLDER]
                                       put a message into its addressees' folders, and show where;
                                       a second one with this KEY in reply to the same FILE is the first one

Exit codes: 0 done, 1 failed or refused, 2 wrong usage.
"""

ONCE = {
    "message_id": "message-id",
    "from": "from",
    "to": "to",
    "cc": "cc",
    "date": "date",
    "in_reply_to": "in-reply-to",
    "type": "x-ignite-type",
    "priority": "x-ignite-priority",
    "thread_id": "x-ignite-thread-id",
    "repository": "x-ignite-repository",
    "issue": "x-ignite-issue",
    "status": "x-ignite-status",
    "content_type": "content-type",
}
"""The keys that every parsed message has, in this order, and the headers that they come from."""
LISTS = ("to", "cc")
OWN_PREFIX = "x-ignite-"
CONTENT_TYPE, ENCODING = "text/x-yaml; charset=utf-8", "8bit"

# What may stand in a message: only `validate` and `send` insist on it.
REQUIRED = (
    "MIME-Version Message-ID From To Date X-IGNITE-Type X-IGNITE-Priority Content-Type Content-Transfer-Encoding"
).split()
PRIORITIES = ("critical", "high", "normal", "low")
AGENTS = (
    "user leader strategist architect evaluator coordinator innovator ignitian_{n} system github_watcher queue_monitor"
).split()
TYPES = {
    "user_goal": ("user", "leader", "goal"),
    "strategy_request": ("leader", "strategist", "goal"),
    "strategy_response": ("strategist", "leader", "strategy"),
    "task_list": ("strategist leader", "coordinator", "tasks"),
    "architecture_request": ("leader", "architect", "goal question"),
    "architecture_response": ("architect", "leader", "goal proposed_architecture"),
    "task_assignment": ("coordinator", "ignitian_{n}", "task_id title"),
    "task_completed": ("ignitian_{n}", "coordinator", "task_id status"),
    "evaluation_request": ("coordinator", "evaluator", "task_id title deliverables"),
    "evaluation_result": ("evaluator", "leader coordinator", "task_id overall_status|verdict"),
    "improvement_request": ("evaluator leader", "innovator", "task_id issues"),
    "improvement_suggestion": ("innovator", "leader", "title proposed_improvement"),
    "improvement_completed": ("innovator", "leader", "task_id improvements_made"),
    "progress_update": ("coordinator leader", "leader user", "repository summary"),
    "system_init": ("system", "leader", "message action"),
    "github_event": ("github_watcher", "leader", "event_type"),
    "github_task": ("github_watcher", "leader", "trigger repository issue_number"),
    "design_review_request": ("strategist", "architect", "goal proposed_strategy"),
    "design_review_response": ("architect", "strategist", "goal review_result"),
    "quality_plan_request": ("strategist", "evaluator", "goal tasks"),
    "quality_plan_response": ("evaluator", "strategist", "goal quality_criteria"),
    "insight_request": ("strategist", "innovator", "goal proposed_strategy"),
    "insight_response": ("innovator", "strategist", "goal insights"),
    "escalation": ("queue_monitor", "leader", "task_id failure_reason retry_count max_retries recommended_action"),
    "dead_letter": ("queue_monitor", "leader", "original_file failure_info original_message"),
}
"""Who writes a type to whom, and the fields that its body needs (`a|b`: one of them)."""
TYPES_WITHOUT_RULES = (
    "revision_request review_request help_request help_ack help_request_forwarded issue_proposal issue_proposal_ack "
    "issue_proposal_forwarded insight_result memory_review_request improvement_suggestion_ack notification "
    "slack_event slack_task"
).split()

CONTROL = frozenset(map(chr, (*range(32), *range(127, 160), 0x2028, 0x2029)))
"""What may stand in no header: programs take one or another of these for the end of a line."""


class Refused(Exception):
    """The message is not written. The text says why."""


class Misused(Exception):
    """The command was called as it cannot be. The text says why."""


def build_message(
    *,
    from_agent: str,
    to_agents: str | Iterable[str],
    msg_type: str,
    body: str | None = "",
    cc: str | Iterable[str] | None = (),
    priority: str | None = "normal",
    thread_id: str | None = "",
    in_reply_to: str | None = "",
    repo: str | None = "",
    issue: str | int | None = "",
    status: str | None = "",
) -> str:
    """Return a new message with an id and the current time. ValueError for a value that would break its header."""
    now = time.time()
    headers = (
        ("MIME-Version", "1.0"),
        ("Message-ID", f"<{int(now)}.{os.getpid()}.{os.urandom(6).hex()}@ignite.local>"),
        ("From", from_agent),
        ("To", ", ".join(names(to_agents))),
        ("Cc", ", ".join(names(cc or ()))),
        ("Date", time.strftime("%a, %d %b %Y %H:%M:%S %z", time.localtime(now))),
        ("X-IGNITE-Type", msg_type),
        ("X-IGNITE-Priority", priority or "normal"),
        ("X-IGNITE-Thread-ID", thread_id),
        ("In-Reply-To", in_reply_to),
        ("X-IGNITE-Repository", repo),
        ("X-IGNITE-Issue", issue),
        ("X-IGNITE-Status", status),
        ("Content-Type", CONTENT_TYPE),
        ("Content-Transfer-Encoding", ENCODING),
    )
    lines = [f"{name}: {value}" for name, value in headers if value not in ("", None)]
    if not CONTROL.isdisjoint("".join(lines)):
        for name, value in headers:
            _check_value(name, str(value))
    return "\n".join((*lines, "", body or ""))


def parse_message(raw: str) -> Parsed:
    """Return headers and body by name. What is absent is "" or []; of headers that stand twice the last is read."""
    values, body = _plain_values(raw) or _values(raw)
    get = values.get
    found: Parsed = {key: get(header, "") for key, header in _ONCE}
    for key in LISTS:
        found[key] = names(str(found[key])) if found[key] else []
    found["priority"] = found["priority"] or "normal"
    found["body"] = body
    for name, value in values.items():
        if name not in _HEADERS and name.startswith(OWN_PREFIX):
            key = name[len(OWN_PREFIX) :].replace("-", "_")
            found[key if key and key not in ONCE and key != "body" else f"x_ignite_{key}"] = value
    return found


_ONCE = tuple(ONCE.items())
_HEADERS = frozenset(ONCE.values())


def _plain_values(raw: str) -> tuple[dict[str, str], str] | None:
    """Return the headers' values by name, and the body, of a message as we write them; None of any other.

    Its lines end at LF, none is folded, and all its headers were read before.
    """
    end = raw.find("\n\n")
    head = raw[:end]
    if end < 0 or "\r" in head:
        return None
    values, known = {}, _SMALL
    for line in head.split("\n"):
        name, colon, value = line.partition(":")
        small = known.get(name)
        if not small or not colon:
            return None
        values[small] = value.strip(" \t")
    return values, raw[end + 2 :]


def _values(raw: str) -> tuple[dict[str, str], str]:
    """Return the same of any message."""
    fields, _, body = split(raw)
    values = {name: text[len(name) + 1 :].strip(" \t\r\n") for name, text in fields}
    values.pop("", None)
    for name, value in values.items():
        if "\n" in value:
            values[name] = value.replace("\r\n", "").replace("\n", "")
    return values, body


def extract_body(raw: str) -> str:
    """Return all that follows the first blank line."""
    return split(raw)[2]


def update_status(raw: str, status: str, /, **headers: str | None) -> str:
    """Return the message with this status, and with these headers by their full names; None removes one."""
    return _edited(raw, {"X-IGNITE-Status": status, **headers})


def update_header(raw: str, name: str, value: str) -> str:
    """Return the message with a header replaced where it stands, or added as the last one."""
    return _edited(raw, {name: value})


def remove_header(raw: str, name: str) -> str:
    """Return the message without a header."""
    return _edited(raw, {name: None})


def names(given: str | Iterable[str]) -> list[str]:
    """Return the names in a list, or in texts that join them by commas."""
    joined = given if isinstance(given, str) else ",".join(given)
    return [name for part in joined.split(",") if (name := part.strip(" \t"))]


def split(raw: str) -> tuple[list[tuple[str, str]], str, str]:
    """Return the headers, the blank line and the body: joined they are the message again.

    A header is its name in small letters and its lines; the name is "" where the line has none.
    """
    fields: list[tuple[str, str]] = []
    start, size = 0, len(raw)
    find, add, known = raw.find, fields.append, _SMALL
    while start < size:
        end = find("\n", start) + 1 or size
        line = raw[start:end]
        start = end
        if line[0] not in " \t\r\n":
            colon = line.find(":")
            name = line[:colon] if colon > 0 else ""
            small = known.get(name)
            add((_small(name) if small is None else small, line))
        elif line in ("\n", "\r\n"):
            return fields, line, raw[end:]
        elif line[0] in " \t" and fields:
            name, text = fields[-1]
            fields[-1] = (name, text + line)
        else:
            fields.append(("", line))
    return fields, "", ""


_SMALL = {"": ""}
"""Names of headers that were read before, in small letters; "" for what is no name."""


def _small(name: str) -> str:
    """Return a name in small letters, "" for what is none, and remember it."""
    small = name.lower() if _is_name(name) else ""
    if len(_SMALL) < 1000:
        _SMALL[name] = small
    return small


def _is_name(name: str) -> bool:
    return name.isascii() and name.isprintable() and name != "" and " " not in name and ":" not in name


def _value(text: str) -> str:
    value = text[text.find(":") + 1 :].strip(" \t\r\n")
    return value.replace("\r\n", "").replace("\n", "") if "\n" in value else value


def _ending(text: str) -> str:
    return "\r\n" if text.endswith("\r\n") else "\n" if text.endswith("\n") else ""


def _edited(raw: str, changes: dict[str, str | None]) -> str:
    """Return the message with other headers; None removes one. No other byte changes."""
    fields, blank, body = split(raw)
    for name, value in changes.items():
        if not _is_name(name):
            raise ValueError(f"{name!r} is no name of a header")
        if value is None:
            _remove(fields, name.lower(), keep_first=False)
        else:
            _check_value(name, value)
            _replace(fields, name, value, blank)
    return "".join([text for _, text in fields]) + blank + body


def _check_value(name: str, value: str) -> None:
    if found := CONTROL.intersection(value):
        raise ValueError(f"{name}: a control character ({', '.join(sorted(f'U+{ord(one):04X}' for one in found))})")


def _replace(fields: list[tuple[str, str]], name: str, value: str, blank: str) -> None:
    small = name.lower()
    for place, (known, text) in enumerate(fields):
        if known == small:
            _check_whole(text)
            fields[place] = (small, f"{text.partition(':')[0]}: {value}{_ending(text)}")
            _remove(fields, small, keep_first=True)
            return
    _append(fields, name, value, blank)


def _check_whole(line: str) -> None:
    if line.endswith("\r"):
        raise ValueError("the message is cut off within a line's end")


def _append(fields: list[tuple[str, str]], name: str, value: str, blank: str) -> None:
    """Add a line that ends as its neighbour does: a message without a last newline stays without one."""
    ending = _ending(fields[-1][1]) if fields else blank or "\n"
    if not ending:
        known, text = fields[-1]
        _check_whole(text)  # a line feed after it could make a blank line of it
        fields[-1] = (known, text + (_ending(fields[-2][1]) if len(fields) > 1 else "\n"))
    fields.append((name.lower(), f"{name}: {value}{ending}"))


def _remove(fields: list[tuple[str, str]], name: str, *, keep_first: bool) -> None:
    is_open = bool(fields) and not _ending(fields[-1][1])
    seen = not keep_first
    kept = []
    for field in fields:
        if field[0] != name or not seen:
            kept.append(field)
            seen = seen or field[0] == name
    if is_open and kept and (ending := _ending(kept[-1][1])):
        kept[-1] = (kept[-1][0], kept[-1][1].removesuffix(ending))
    fields[:] = kept


def faults(raw: bytes, judge: Judge | None = None, *, names_too: bool = True) -> list[str]:
    """Return what is wrong with a message, one line each. `judge` knows more about bodies than their first keys.

    Without `names_too` any agent and any priority will do.
    """
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        return [f"byte {error.start} is no UTF-8"]
    fields, _, body = split(text)
    found = list(_faults_of_headers(fields, names_too))
    kind = next((_value(line) for name, line in reversed(fields) if name == "x-ignite-type"), "")
    return found + (judge(kind, body) if judge else list(_faults_of_body(kind, body)))


def _faults_of_headers(fields: list[tuple[str, str]], names_too: bool) -> Iterator[str]:
    values: dict[str, str] = {}
    for name, text in fields:
        if not name:
            yield f"{text[:60].strip()!r} is no header"
        elif name in values:
            yield f"{text.partition(':')[0]} stands twice"
        else:
            values[name] = _value(text)
            if not CONTROL.isdisjoint(values[name].replace("\t", " ")):
                yield f"{text.partition(':')[0]} has a control character"
    for name in REQUIRED:
        if not values.get(name.lower()):
            yield f"{name} is missing"
    yield from _odd_values(values)
    if names_too:
        yield from _odd_names(values)


def _odd_values(values: dict[str, str]) -> Iterator[str]:
    for name, wanted in (
        ("MIME-Version", "1.0"),
        ("Content-Type", CONTENT_TYPE),
        ("Content-Transfer-Encoding", ENCODING),
    ):
        value = values.get(name.lower(), "")
        if value and value.lower().replace(" ", "") != wanted.replace(" ", ""):
            yield f"{name} is {value!r}, not {wanted!r}"
    if (stamp := values.get("date")) and not _is_date(stamp):
        yield f"Date {stamp!r} is no date of RFC 2822"
    identity = values.get("message-id", "")
    if identity and not (
        identity.startswith("<") and identity.endswith(">") and "@" in identity and " " not in identity
    ):
        yield f"Message-ID {identity!r} is not <something@somewhere>"


def _odd_names(values: dict[str, str]) -> Iterator[str]:
    priority = values.get("x-ignite-priority", "")
    if priority and priority not in PRIORITIES:
        yield f"X-IGNITE-Priority {priority!r} is none of {', '.join(PRIORITIES)}"
    for header in ("From", "To", "Cc"):
        for agent in names(values.get(header.lower(), "")):
            if not folder_of(agent):
                yield f"{header} names {agent!r}; known are {', '.join(AGENTS)}"


def _is_date(stamp: str) -> bool:
    from email.utils import parsedate_to_datetime

    try:
        parsedate_to_datetime(stamp)
    except (ValueError, TypeError, IndexError, OverflowError):
        return False
    return True


def folder_of(agent: str) -> str:
    """Return the name of an agent's folder, "" for somebody unknown."""
    head, _, number = agent.replace("-", "_").rpartition("_")
    if head == "ignitian" and number.isascii() and number.isdigit():
        return f"ignitian_{number}"
    is_watcher = number == "watcher" and head.replace("_", "").isalnum() and agent.isascii()
    return agent if (agent in AGENTS and "{" not in agent) or is_watcher else ""


def _faults_of_body(kind: str, body: str) -> Iterator[str]:
    """Yield what can be told without a reader of YAML: whether it is a mapping, and which fields it lacks."""
    keys = _keys(body)
    if keys is None:
        return
    if not keys:
        yield "the body is no YAML mapping"
        return
    for field in TYPES.get(kind, ("", "", ""))[2].split():
        if keys.isdisjoint(field.split("|")):
            yield f"the body of a {kind} needs {field.replace('|', ' or ')}"


def warnings(raw: bytes) -> list[str]:
    """Return what is delivered all the same: a type that nobody knows, agents that do not use it."""
    message = parse_message(raw.decode("utf-8", "replace"))
    kind, sender = str(message["type"]), str(message["from"])
    if kind not in TYPES:
        return [] if kind in TYPES_WITHOUT_RULES else [f"nobody knows the type {kind!r}"]
    senders, receivers, _ = (words.split() for words in TYPES[kind])
    odd = [] if _role(sender) in senders else [f"{sender!r} does not send a {kind}, but {' or '.join(senders)}"]
    odd += [f"{to!r} is not sent a {kind}" for to in message["to"] if _role(to) not in receivers]
    return odd


def _role(agent: str) -> str:
    """Return what an agent is called in the table of types."""
    folder = folder_of(agent)
    if folder.startswith("ignitian_"):
        return "ignitian_{n}"
    return "github_watcher" if folder.endswith("_watcher") else folder


def _keys(body: str) -> set[str] | None:
    """Return the outermost keys of a YAML mapping, or those of its payload; None when only a reader of YAML knows."""
    found: set[str] = set()
    payload: list[str] = []
    last = ""
    for line in body.split("\n"):
        if not line.strip() or line.startswith(("#", "---", "%", "...")):
            continue
        if line[0] in " \t" or (line[0] == "-" and found):
            payload += [line] if last == "payload" else []
            continue
        if line[0] in "{?&!*":
            return None
        last, colon, rest = line.rstrip("\r").partition(":")
        if not colon or rest[:1] not in ("", " ", "\t"):
            return found
        last = last.strip().strip("\"'")
        found.add(last)
    if {"type", "payload"} <= found and payload:
        margin = len(payload[0]) - len(payload[0].lstrip())
        return _keys("\n".join(line[margin:] for line in payload))
    return found


def _text(raw: bytes) -> str:
    """Return bytes as text that `_bytes` makes the same bytes again."""
    return raw.decode("utf-8", "surrogateescape")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _read(path: bytes) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.readall()


def _draft(folder: bytes, data: bytes, mode: int = 0o600) -> bytes:
    """Write data durably under a name that no reader takes up, and return that."""
    path = os.path.join(folder, f".{PROGRAM}-{os.getpid()}-{os.urandom(4).hex()}.tmp".encode())
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        written = 0
        while written < len(data):
            written += os.write(file, data[written:])
        os.fchmod(file, mode)
        os.fsync(file)
    except OSError:
        os.unlink(path)
        raise
    finally:
        os.close(file)
    return path


def _sync_folder(folder: bytes) -> None:
    file = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _write(path: bytes, data: bytes) -> None:
    """Put a message where its writer wants it. What is no regular file is written into."""
    if os.path.exists(path) and not os.path.isfile(path):
        with open(path, "wb", buffering=0) as file:
            file.write(data)
        return
    path = os.path.realpath(path)
    folder = os.path.dirname(path)
    os.makedirs(folder, 0o700, exist_ok=True)
    draft = _draft(folder, data)
    try:
        os.replace(draft, path)
    except OSError:
        os.unlink(draft)
        raise
    _sync_folder(folder)


def rewrite(path: bytes, edit: Callable[[str], str], keep: bool = True, wait: float = 10.0) -> None:
    """Replace a file by its edited text; FileNotFoundError when it vanishes meanwhile. Its mode stays.

    Without `keep` a power cut may undo the edit: then the file is whole as before. Another edit may have it locked
    for `wait` seconds; BlockingIOError when that takes longer.
    """
    path = os.path.realpath(path)
    file = _open_locked(path, time.monotonic() + wait)
    try:
        before = b"".join(iter(lambda: os.read(file, 1 << 20), b""))
        after = _bytes(edit(_text(before)))
        if after == before:
            return
        draft = _draft(os.path.dirname(path), after, os.fstat(file).st_mode & 0o7777)
        try:
            _exchange(draft, path)
        finally:
            os.unlink(draft)
        if keep:
            _sync_folder(os.path.dirname(path))
    finally:
        os.close(file)


def _open_locked(path: bytes, until: float) -> int:
    """Open a file for one edit at a time. Whoever waited for another's edit opens what that has left."""
    import fcntl

    while True:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            if not os.path.isfile(file):  # asked of what is open: the name may be gone by now
                raise OSError(22, "is no regular file", path)
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(file), os.stat(path)):
                return file
        except BlockingIOError:
            if time.monotonic() >= until:
                os.close(file)
                raise BlockingIOError(11, "is being edited by somebody else", path) from None
            time.sleep(0.005)
        except OSError:
            os.close(file)
            raise
        os.close(file)


def _exchange(draft: bytes, path: bytes) -> None:
    """Swap two files. Unlike a rename this fails when nothing is at `path`: a deleted message does not come back."""
    import ctypes

    at_cwd, exchange = -100, 2
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        failed = libc.renameat2(at_cwd, draft, at_cwd, path, exchange)
    except AttributeError:
        raise OSError(38, "this C library cannot exchange two files", path) from None
    if failed:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), path)


def _place(draft: bytes, folder: bytes, kind: str, micros: int, identity: str = "") -> bytes:
    """Give a draft the first free name of the queue's rule. Nothing that is there is replaced.

    A message of this `identity` that is there already, also in processed/, is as good as the draft.
    """
    while True:
        name = f"{kind}_{micros:016d}.mime".encode()
        path = os.path.join(folder, name)
        for known in (path, os.path.join(folder, b"processed", name)) if identity else ():
            if _holds(known, identity):
                os.unlink(draft)
                return known
        try:
            os.link(draft, path)
        except FileExistsError:
            micros += 1
        else:
            os.unlink(draft)
            _sync_folder(folder)
            return path


def _holds(path: bytes, identity: str) -> bool:
    """Return whether a file is the message of this id."""
    try:
        return parse_message(_read(path).decode("utf-8", "replace"))["message_id"] == identity
    except OSError:
        return False


def _find_queue() -> bytes:
    """Return workspace/queue of the home: that of the environment, else the nearest folder around us that has one."""
    named = os.environb.get(b"KINGDOM_HOME") or os.environb.get(b"KINGDOM_BASE_DIR")
    here = os.path.realpath(named or os.getcwdb())
    while True:
        queue = os.path.join(here, b"workspace", b"queue")
        if os.path.isdir(queue):
            return queue
        above = os.path.dirname(here)
        if named or above == here:
            raise Refused("there is no workspace/queue here; name it with --queue")
        here = above


Given = dict[str, list[str]]
"""What stands in a call: words as the system gave them, by option; "" holds those without one."""
MESSAGE = "from to cc type priority thread-id in-reply-to repo issue status body body-file".split()
SEVERAL = ("to", "cc", "extra")


def build(given: Given, judge: Judge | None) -> int:
    message = _bytes(_message(given))
    if target := _last(given, "output"):
        _write(os.fsencode(target), message)
    else:
        _show(message)
    return 0


def _message(given: Given, **found: str) -> str:
    """Return the message that options describe; `found` holds what they left open."""
    for name in ("from", "to", "type"):
        if not any(given.get(name, ())):
            raise Misused(f"--{name} is missing")
    body = _utf8(_last(given, "body"))
    if file := _last(given, "body-file"):
        body = _text(sys.stdin.buffer.read() if file == "-" else _read(os.fsencode(file)))
    option = {name: _utf8(_last(given, name)) or found.get(name, "") for name in MESSAGE}
    return build_message(
        from_agent=option["from"],
        to_agents=map(_utf8, given["to"]),
        msg_type=option["type"],
        body=body,
        cc=map(_utf8, given.get("cc", ())),
        priority=option["priority"],
        thread_id=option["thread-id"],
        in_reply_to=option["in-reply-to"],
        repo=option["repo"],
        issue=option["issue"],
        status=option["status"],
    )


def parse(given: Given, judge: Judge | None) -> int:
    (path,) = given[""]
    _show(_json(parse_message(_read(os.fsencode(path)).decode("utf-8", "replace"))).encode())
    return 0


def _json(parsed: Parsed) -> str:
    escapes: dict[int, str] = {code: f"\\u{code:04x}" for code in range(32)}
    escapes |= {ord(char): f"\\{to}" for char, to in zip('"\\\n\r\t\f\b', '"\\nrtfb', strict=True)}

    def quoted(text: str) -> str:
        return f'"{text.translate(escapes)}"'

    lines = []
    for key, value in parsed.items():
        if isinstance(value, str):
            shown = quoted(value)
        else:
            shown = "[\n    " + ",\n    ".join(map(quoted, value)) + "\n  ]" if value else "[]"
        lines.append(f"  {quoted(key)}: {shown}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def show_body(given: Given, judge: Judge | None) -> int:
    (path,) = given[""]
    _show(_bytes(extract_body(_text(_read(os.fsencode(path))))))
    return 0


def set_status(given: Given, judge: Judge | None) -> int:
    path, status = given[""]
    headers = {"X-IGNITE-Processed-At": stamp} if (stamp := _utf8(_last(given, "processed-at"))) else {}
    for word in given.get("extra", ()):
        name, equals, value = _utf8(word).partition("=")
        if not equals:
            raise Misused(f"--extra {name}: it is Header-Name=value")
        headers[name] = value
    rewrite(os.fsencode(path), lambda raw: update_status(raw, _utf8(status), **headers))
    return 0


def set_header(given: Given, judge: Judge | None) -> int:
    path, name, value = given[""]
    rewrite(os.fsencode(path), lambda raw: update_header(raw, _utf8(name), _utf8(value)))
    return 0


def drop_header(given: Given, judge: Judge | None) -> int:
    path, name = given[""]
    rewrite(os.fsencode(path), lambda raw: remove_header(raw, _utf8(name)))
    return 0


def validate(given: Given, judge: Judge | None) -> int:
    found = []
    for path in given[""]:
        raw = _read(os.fsencode(path))
        found += [f"{path}: {fault}" for fault in faults(raw, judge)]
        _warn([f"{path}: warning: {odd}" for odd in warnings(raw)])
    _show("".join(f"{line}\n" for line in found).encode("utf-8", "surrogateescape"))
    return 1 if found else 0


def send(given: Given, judge: Judge | None) -> int:
    found = {}
    if answered := _last(given, "reply-to"):
        asked = parse_message(_read(os.fsencode(answered)).decode("utf-8", "replace"))
        found = {"in-reply-to": str(asked["message_id"]), "thread-id": str(asked["thread_id"])}
    micros = time.time_ns() // 1000
    raw = _message(given, **found)
    if key := _utf8(_last(given, "once")):
        if not answered:
            raise Misused("--once needs --reply-to")
        micros, identity = _once(key, os.path.basename(answered), raw)
        raw = update_header(raw, "Message-ID", identity)
    message = parse_message(raw)
    kind = str(message["type"])
    if not kind.replace("_", "").isalnum() or not kind.isascii():
        raise Refused(f"{kind!r} is no type of message")
    if wrong := faults(_bytes(raw), judge):
        raise Refused("\n".join(wrong))
    _warn([f"warning: {odd}" for odd in warnings(_bytes(raw))])
    folders = _folders_for(message, os.fsencode(_last(given, "queue")))
    for folder in folders:
        os.makedirs(folder, 0o700, exist_ok=True)
    drafts = [(_draft(folder, _bytes(raw)), folder) for folder in folders]
    for draft, folder in drafts:
        _show(_place(draft, folder, kind, micros, str(message["message_id"]) if key else "") + b"\n")
    return 0


def _folders_for(message: Parsed, queue: bytes) -> list[bytes]:
    """Return where a message is put: into each addressee's folder, or in a sandbox once into the sender's outbox."""
    if not queue and (outbox := os.environb.get(b"KINGDOM_OUTBOX")):
        return [outbox]
    queue = queue or _find_queue()
    addressees = dict.fromkeys(folder_of(agent) for agent in (*message["to"], *message["cc"]))
    return [os.path.join(queue, agent.encode()) for agent in addressees]


def _once(key: str, answered: str, raw: str) -> tuple[int, str]:
    """Return the microsecond and the id of a message that is sent once, made of its key and of what it answers."""
    import hashlib

    message = parse_message(raw)
    about = [message[name] for name in ("from", "to", "cc", "type", "thread_id", "in_reply_to")]
    digest = hashlib.sha256(repr((key, answered, about)).encode("utf-8", "replace")).hexdigest()
    digits = answered[-21:-5]
    micros = (int(digits) if digits.isdigit() else 0) + 1 + int(digest[:4], 16)
    return micros, f"<{micros // 1_000_000}.{int(digest[4:8], 16)}.{digest[8:20]}@ignite.local>"


COMMANDS: dict[str, tuple[Callable[[Given, Judge | None], int], str, Sequence[str]]] = {
    "build": (build, "", (*MESSAGE, "output")),
    "parse": (parse, "FILE", ()),
    "extract-body": (show_body, "FILE", ()),
    "update-status": (set_status, "FILE STATUS", ("processed-at", "extra")),
    "update-header": (set_header, "FILE NAME VALUE", ()),
    "remove-header": (drop_header, "FILE NAME", ()),
    "validate": (validate, "FILE...", ()),
    "send": (send, "", (*MESSAGE, "reply-to", "once", "queue")),
}
"""Of each command the function, the words that it takes, and its options."""


def main(words: Sequence[str], judge: Judge | None = None) -> int:
    """Carry out one command and return its exit code. `judge` returns what is wrong with a body, by type."""
    try:
        return _call(list(words), judge)
    except (Misused, ValueError) as error:
        return _complain(f"{error}", 2, USAGE if isinstance(error, Misused) else "")
    except Refused as error:
        return _complain(f"{error}", 1)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # its reader has seen enough
        return 1
    except OSError as error:
        path = error.filename2 or error.filename or ""
        where = f"{os.fsdecode(path)}: " if isinstance(path, (str, bytes)) and path else ""
        return _complain(f"{where}{error.strerror or error}", 1)


def _call(words: list[str], judge: Judge | None) -> int:
    if words[:1] in (["-h"], ["--help"]):
        _show(USAGE.encode())
        return 0
    if not words or words[0] not in COMMANDS:
        raise Misused(f"there is no command {words[0]!r}" if words else "which command?")
    function, takes, options = COMMANDS[words[0]]
    given = _given(words[1:], options)
    if given is None:
        _show(USAGE.encode())
        return 0
    wanted, had = len(takes.split()), len(given[""])
    if had < wanted or (had > wanted and not takes.endswith("...")):
        raise Misused(f"{words[0]} takes {takes or 'options alone'}")
    if judge is None and words[0] in ("validate", "send"):
        judge = _find_judge()
    return function(given, judge)


def _given(words: list[str], options: Sequence[str]) -> Given | None:
    """Return the words by option; None when help is asked for."""
    given: Given = {"": []}
    rest = iter(words)
    open_list = ""
    for word in rest:
        name, equals, value = word[2:].partition("=")
        if word.startswith("--") and name in options:
            if not equals and (value := next(rest, None)) is None:  # type: ignore[assignment]
                raise Misused(f"--{name} needs a value")
            given.setdefault(name, []).append(value)
            open_list = name if name in SEVERAL and not equals else ""
        elif word.startswith("-o") and "output" in options:
            if (value := word[2:] or next(rest, None)) is None:  # type: ignore[assignment]
                raise Misused("-o needs a value")
            given.setdefault("output", []).append(value)
            open_list = ""
        elif word in ("-h", "--help"):
            return None
        elif word == "--":
            given[""] += rest
        elif word.startswith("-") and word != "-" and not word[1].isdigit():
            raise Misused(f"there is no option {word.partition('=')[0]!r} here")
        elif open_list and (open_list != "extra" or _is_assignment(word)):
            given[open_list].append(word)
        else:
            given[""].append(word)
            open_list = ""
    return given


def _is_assignment(word: str) -> bool:
    name, equals, _ = word.partition("=")
    return bool(equals) and "-" in name and name.replace("-", "").isalnum()


def _find_judge() -> Judge | None:
    """Return Kingdom's own judge of bodies, where this Python has Kingdom."""
    try:
        from kingdom.council.bodies import faults_of_body
    except ImportError:
        return None
    return faults_of_body


def _last(given: Given, name: str) -> str:
    return given[name][-1] if given.get(name) else ""


def _utf8(word: str) -> str:
    """Return a word of the command line as UTF-8, whatever the locale has made of it."""
    return os.fsencode(word).decode("utf-8", "replace")


def _show(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def _warn(lines: list[str]) -> None:
    if lines:
        _complain("\n".join(lines), 0)


def _complain(sentence: str, code: int, usage: str = "") -> int:
    lines = "".join(f"{PROGRAM}: {line}\n" for line in sentence.split("\n"))
    sys.stderr.buffer.write(_bytes(usage + lines))
    sys.stderr.buffer.flush()
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
