"""Codex. Its options and words were checked against the published package: see docs/engines.md.

It names no cost and no code of an error, so errors are known by their words; and it has no bound for turns or money.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from kingdom.base.records.soldiers import SoldierOrder
from kingdom.court.soldiers.engines import endings, programs
from kingdom.court.soldiers.engines.base import Engine, NeedsSetUp
from kingdom.court.soldiers.engines.endings import FAILURE, FINAL, LIMIT, SET_UP, Ending

if TYPE_CHECKING:
    from pathlib import Path

    from kingdom.base.home.manifests import Manifest
    from kingdom.court.soldiers.engines.base import Surroundings

NAME = "codex"
KEYS = ("OPENAI_API_KEY", "CODEX_API_KEY")
CREDENTIALS = ".codex/auth.json"
SCHEMA = ".codex/result.schema.json"
NATIVES = (
    "codex-linux-*/vendor/*/bin/codex",
    "codex/node_modules/@openai/codex-linux-*/vendor/*/bin/codex",
    "codex/vendor/*-linux-*/bin/codex",
)
ADDRESS = "https://api.openai.com/v1"
RETRIES, SILENCE_MS = 1, 300_000
OFF = ("plugins", "apps", "unbounded_connection_retries")
"""Features that speak to others, or would wait for ever for a service that is away."""

_LIMIT = re.compile(
    r"usage limit|quota exceeded|exceeded your current quota|rate limit|status:? (429|529)\b|too many requests"
    r"|insufficient_quota|out of credits|credit limit|hit your spend cap"
    r"|billing (hard )?limit|billing_(hard_limit|not_active)",
    re.IGNORECASE,
)
_SET_UP = re.compile(
    r"\b401 unauthorized|status:? 401\b|missing environment variable|not logged in|codex login|(log|sign) in again"
    r"|(incorrect|invalid)[ _]api[ _]key|(access|refresh) token (could not|was|has|is)",
    re.IGNORECASE,
)
_TOO_LONG = re.compile(r"context window|context_length_exceeded", re.IGNORECASE)
_IN = re.compile(r"try again in (?P<rest>(?:[\d.]+ ?[a-z]+,? ?(?:and )?)+)", re.IGNORECASE)
_PART = re.compile(r"([\d.]+) ?(d|h|m(?!s)|s|ms)", re.IGNORECASE)
_SECONDS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_AT = re.compile(r"try again at (?:(?P<day>[A-Z][a-z]{2} \d{1,2})[a-z]{2}, (?P<year>\d{4}) )?(?P<time>\d+:\d+ [AP]M)")


class CodexEngine(Engine):
    variables = (*KEYS, *programs.PROXIES)
    kept = (".codex/sessions",)

    def program(self, services: Surroundings, manifest: Manifest) -> str:
        from kingdom.court.soldiers import owner  # more than a soldier should load

        runtime = services.system["runtime"]
        program = programs.find(NAME, str(runtime[NAME]["command"]), NATIVES)
        if not (owner.has_variable(services, KEYS) or owner.credentials(runtime, CREDENTIALS)):
            raise NeedsSetUp(why=f"the engine codex has no key: put {KEYS[0]} into .env, or sign in with `codex login`")
        return program

    def account(self, general: str) -> str:
        return NAME

    def furnish(self, services: Surroundings, manifest: Manifest, home: Path) -> None:
        from kingdom.court.soldiers import instructions, owner

        disk = owner.Furnishing(home)
        disk.write(SCHEMA, json.dumps(endings.SCHEMA))
        if not owner.has_variable(services, KEYS) and (
            credentials := owner.credentials(services.system["runtime"], CREDENTIALS)
        ):
            # Without the token that renews it: the owner's own program is the one that refreshes.
            tokens = {**(credentials.get("tokens") or {}), "refresh_token": ""}
            disk.write(CREDENTIALS, json.dumps({**credentials, "tokens": tokens}))
        for source in owner.of_package(services.places, manifest.name, "skills", NAME):
            disk.copy(".codex/skills", source)
        if (text := instructions.together(services.places, manifest.name)) is not None:
            disk.write(".codex/AGENTS.md", text)

    def argv(self, order: SoldierOrder) -> list[str]:
        return [order.program, "exec", *(["resume"] if order.session_id else []), *_words(order)]

    def result(self, order: SoldierOrder, exit_code: int) -> Mapping[str, Any] | None:
        return endings.result(order, _ending(order, exit_code))

    def readable(self, line: str) -> str | None:
        event = endings.event_of(line)
        kind = str(event.get("type")) if event else ""
        if event is None or not kind.startswith(("thread.", "turn.", "item.", "error")) or "session_id" in event:
            return None
        return "\n".join(_lines_of(event))


def _words(order: SoldierOrder) -> Iterator[str]:
    yield from ("--json", "--skip-git-repo-check")
    if order.sandbox:
        # It stands in the kingdom's own sandbox, in which it could not set up a second one.
        yield "--dangerously-bypass-approvals-and-sandbox"
    elif not order.session_id:
        yield from ("--sandbox", "workspace-write")
    for feature in OFF:
        yield from ("--disable", feature)
    for setting in _settings(order):
        yield from ("-c", setting)
    if order.settings.get("model"):
        yield from ("--model", str(order.settings["model"]))
    if order.home:
        yield from ("--output-schema", f"{order.home}/{SCHEMA}")
    if order.session_id:
        yield order.session_id
    yield "-"


def _settings(order: SoldierOrder) -> Iterator[str]:
    yield "check_for_update_on_startup=false"
    yield "analytics.enabled=false"
    yield f"shell_environment_policy.exclude={json.dumps(KEYS)}"
    for name, server in order.mcp.items():
        for key, value in server.items():
            yield f"mcp_servers.{name}.{key}={_toml(value)}"
    variable = next((name for name in KEYS if os.environ.get(name)), None)
    if variable is not None:
        address = json.dumps(str(order.settings.get("base_url") or ADDRESS))
        about = f'name="kingdom",base_url={address},env_key={json.dumps(variable)},wire_api="responses"'
        bounds = f"request_max_retries={RETRIES},stream_max_retries={RETRIES},stream_idle_timeout_ms={SILENCE_MS}"
        yield 'model_provider="kingdom"'
        yield f"model_providers.kingdom={{{about},{bounds}}}"


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key)}={_toml(part)}" for key, part in value.items()) + "}"
    return json.dumps(value)


def _ending(order: SoldierOrder, exit_code: int) -> Ending | None:
    """Return what it said of its run; None when it said nothing at all."""
    text = ""
    session: str | None = None
    error: str | None = None
    usage: Mapping[str, Any] | None = None
    ended = False
    for event in endings.events(order.out):
        match event.get("type"):
            case "thread.started":
                session = event.get("thread_id")
            case "item.completed" if isinstance(item := event.get("item"), dict):
                if item.get("type") == "agent_message":
                    text = str(item.get("text") or "")
            case "error":
                error = str(event.get("message"))
            case "turn.failed":
                ended, error = True, str((event.get("error") or {}).get("message"))
            case "turn.completed":
                usage = event.get("usage") or {}
    if session is None:
        return _without_session(order, exit_code)
    ending = Ending(text, session_id=session)
    if usage is not None:
        before = order.session_totals.get("tokens", 0.0)
        # It counts the tokens of the whole session.
        total = max(before, float(sum(int(usage.get(kind) or 0) for kind in ("input_tokens", "output_tokens"))))
        return ending._replace(metrics={"tokens_used": int(total - before)}, totals={"tokens": total})
    if not ended:
        error = endings.cut_short(NAME, exit_code) + (f": {error}" if error else "")
    text = str(error)
    if _TOO_LONG.search(text):
        return ending._replace(error=f"the prompt is too long: {text}", kind=FINAL)
    if _LIMIT.search(text):
        return ending._replace(error=text, kind=LIMIT, resets_at=_reset(order, text))
    return ending._replace(error=text, kind=SET_UP if ended and _SET_UP.search(text) else FAILURE)


def _without_session(order: SoldierOrder, exit_code: int) -> Ending | None:
    """Return how a run ended in which it only complains: of a session that is not there, of an option unknown to it."""
    try:
        with open(order.err, encoding="utf-8", errors="replace") as err:
            complaint = err.read()[-endings.MOST_SAID :].strip()
    except FileNotFoundError:
        return None
    return Ending(error=complaint) if complaint and exit_code else None


def _reset(order: SoldierOrder, text: str) -> float | None:
    """Return when a limit ends, as far as its words say so: after a while, or at a time of this machine's clock."""
    ended = os.stat(order.out).st_mtime
    if (found := _IN.search(text)) is not None:
        parts = _PART.findall(found["rest"])
        return ended + sum(float(number) * _SECONDS[unit.lower()] for number, unit in parts) if parts else None
    if (at := _AT.search(text)) is None:
        return None
    now = datetime.fromtimestamp(ended).astimezone()
    day = f"{at['day']} {at['year']}" if at["day"] else now.strftime("%b %d %Y")
    try:
        reset = datetime.strptime(f"{day} {at['time']}", "%b %d %Y %I:%M %p").replace(tzinfo=now.tzinfo)
    except ValueError:
        return None
    # A time that has just passed is tomorrow's.
    return (reset if at["day"] or reset > now - timedelta(minutes=1) else reset + timedelta(days=1)).timestamp()


def _lines_of(event: Mapping[str, Any]) -> Iterator[str]:
    """Yield what people see of an event."""
    item = event.get("item")
    item = item if isinstance(item, dict) else {}
    match event["type"], item.get("type"):
        case "item.completed", "agent_message":
            yield str(item.get("text"))
        case "item.started", "command_execution":
            yield f"> {str(item.get('command'))[:300]}"
        case "item.completed", "command_execution" if item.get("exit_code"):
            yield f"! ended with code {item['exit_code']}: {str(item.get('aggregated_output'))[-300:]}"
        case "item.completed", "file_change":
            changes = item.get("changes") or ()
            yield f"> changes {', '.join(str(change.get('path')) for change in changes)}"
        case "item.completed", "error":
            yield f"! {item.get('message')}"
        case "error", _:
            yield f"! {event.get('message')}"
        case "turn.completed", _:
            yield "· ends"
