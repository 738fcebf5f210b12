"""Claude Code. Its options and words were checked against the published package: see docs/engines.md."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kingdom.base.records.soldiers import SoldierOrder
from kingdom.court.soldiers.engines import endings, programs
from kingdom.court.soldiers.engines.base import Engine, NeedsSetUp
from kingdom.court.soldiers.engines.endings import FAILURE, FINAL, LIMIT, SET_UP, Ending

if TYPE_CHECKING:
    from pathlib import Path

    from kingdom.base.home.manifests import Manifest
    from kingdom.court.soldiers.engines.base import Surroundings

NAME = "claude"
KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN")
CREDENTIALS = ".claude/.credentials.json"
PLUGINS = ".claude/of-the-owner"
"""Where in its HOME the owner's plug-ins can be found."""
NATIVES = ("claude-code-linux-*/claude", "claude-code/node_modules/@anthropic-ai/claude-code-linux-*/claude")
SWITCHES = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1",
    "DISABLE_AUTOUPDATER": "1",
    # The kingdom tries again by its own rules, and its breaker wants to know soon.
    "CLAUDE_CODE_MAX_RETRIES": "1",
}
LIMITS = frozenset({429, 529})
LOCKED_OUT = frozenset({401, 403})
NO_KEY = ("not logged in", "please run /login", "invalid api key")
NO_MONEY = re.compile(r"credit balance is too low|usage limit reached|hit your [\w -]{0,30}limit", re.IGNORECASE)
FOR_ITS_MAKERS = "[ede_diagnostic]"
"""Begins a line that it may print beside the subtype error_during_execution, and that tells people nothing."""
MOST_DENIALS = 20
TOKENS = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


class ClaudeEngine(Engine):
    variables = (*KEYS, "ANTHROPIC_BASE_URL", *programs.PROXIES)
    kept = (".claude/projects",)

    def program(self, services: Surroundings, manifest: Manifest) -> str:
        from kingdom.court.soldiers import owner  # more than a soldier should load

        runtime = services.system["runtime"]
        program = programs.find(NAME, str(runtime[NAME]["command"]), NATIVES)
        if not (owner.has_variable(services, KEYS) or owner.credentials(runtime, CREDENTIALS)):
            step = f"put {KEYS[0]} or {KEYS[2]} (of `claude setup-token`) into .env, or sign in with `claude`"
            raise NeedsSetUp(why=f"the engine claude has no key: {step}")
        return program

    def account(self, general: str) -> str:
        return NAME

    def warnings(self, services: Surroundings, manifest: Manifest) -> list[str]:
        from kingdom.court.soldiers import owner

        found = owner.claude_plugins(services.system["runtime"])
        missing = [name for name in manifest.cc_plugins if owner.plugin(found, name) is None]
        if not missing:
            return []
        return [f"cc_plugins: {', '.join(missing)} is not among the plug-ins that are enabled for the kingdom's owner"]

    def furnish(self, services: Surroundings, manifest: Manifest, home: Path) -> None:
        from kingdom.court.soldiers import owner

        runtime = services.system["runtime"]
        disk = owner.Furnishing(home)
        if not owner.has_variable(services, KEYS) and (credentials := owner.credentials(runtime, CREDENTIALS)):
            # Without the token that renews it: the owner's own program is the one that refreshes.
            oauth = {**credentials.get("claudeAiOauth", {}), "refreshToken": ""}
            disk.write(CREDENTIALS, json.dumps({"claudeAiOauth": oauth}))
        found = owner.claude_plugins(runtime)
        for name in manifest.cc_plugins:
            if (folder := owner.plugin(found, name)) is not None:
                disk.link(f"{PLUGINS}/{name}", folder)
        for kind in ("agents", "skills"):
            for source in owner.of_package(services.places, manifest.name, kind, NAME):
                disk.copy(f".claude/{kind}", source)

    def environment(self, order: SoldierOrder) -> Mapping[str, str]:
        # Root may work without questions only in what says that it is a sandbox.
        return {**SWITCHES, **({"IS_SANDBOX": "1"} if order.sandbox else {})}

    def argv(self, order: SoldierOrder) -> list[str]:
        return [order.program, *_words(order)]

    def result(self, order: SoldierOrder, exit_code: int) -> Mapping[str, Any] | None:
        return endings.result(order, _ending(order, exit_code))

    def readable(self, line: str) -> str | None:
        event = endings.event_of(line)
        if event is None or "session_id" not in event or not isinstance(event.get("type"), str):
            return None
        return "\n".join(_lines_of(event))


def _words(order: SoldierOrder) -> Iterator[str]:
    settings, limits = order.settings, order.limits
    yield from ("-p", "--output-format", "stream-json", "--verbose")
    if order.sandbox:
        yield "--dangerously-skip-permissions"
    else:
        yield from ("--permission-mode", "acceptEdits")
        if allowed := settings.get("allowed_tools"):
            yield from ("--allowedTools", ",".join(allowed))
    yield from ("--json-schema", json.dumps({**endings.SCHEMA, "required": ["status"]}))
    if settings.get("model"):
        yield from ("--model", str(settings["model"]))
    if settings.get("max_turns"):
        yield from ("--max-turns", str(settings["max_turns"]))
    if limits.get("budget_usd") is not None:
        yield from ("--max-budget-usd", f"{max(limits['budget_usd'], 0.01):g}")
    for name in order.plugins:
        if order.home and os.path.isdir(folder := f"{order.home}/{PLUGINS}/{name}"):
            yield from ("--plugin-dir", folder)
    if order.mcp:
        yield from ("--mcp-config", json.dumps({"mcpServers": order.mcp}), "--strict-mcp-config")
    if order.session_id:
        yield from ("--resume", order.session_id)


def _ending(order: SoldierOrder, exit_code: int) -> Ending | None:
    """Return what it said of its run; None when it said nothing at all."""
    said: list[str] = []
    session: str | None = None
    resets_at: float | None = None
    error: str | None = None
    end: dict[str, Any] | None = None
    used: dict[str, int] = {}
    for event in endings.events(order.out):
        session = event.get("session_id") or session
        match event.get("type"):
            case "assistant":
                said = list(_texts(event)) or said
                error = event.get("error") or error
                used.update(_tokens_of(event))
            case "rate_limit_event":
                resets_at = _reset(event.get("rate_limit_info")) or resets_at
            case "result":
                end = event
    if end is None:
        if session is None:
            return None
        error = endings.cut_short(NAME, exit_code)
        return Ending(" ".join(said), error=error, session_id=session, metrics={"tokens_used": sum(used.values())})
    ending = Ending(
        text=str(end.get("result") or " ".join(said)),
        structured=end["structured_output"] if isinstance(end.get("structured_output"), dict) else None,
        session_id=session if end.get("num_turns") else order.session_id,
        metrics=_metrics(order, end),
        totals={"cost_usd": _number(end.get("total_cost_usd"))},
        warnings=[*_denials(end)],
    )
    if not end.get("is_error") and end.get("subtype") == "success":
        return ending
    why, kind = _why(end, error)
    return ending._replace(text=" ".join(said), error=why, kind=kind, resets_at=resets_at)


def _why(end: Mapping[str, Any], error: str | None) -> tuple[str, str]:
    """Return why it failed, in its words, and what kind of an error that is."""
    errors = [text for text in map(str, end.get("errors") or ()) if not text.startswith(FOR_ITS_MAKERS)]
    text = str(end.get("result") or "; ".join(errors) or end.get("subtype"))
    status = end.get("api_error_status")
    if end.get("terminal_reason") == "prompt_too_long":
        return f"the prompt is too long: {text}", FINAL
    if end.get("subtype") == "error_max_turns":
        return text, FINAL
    if error in ("rate_limit", "billing_error") or status in LIMITS or NO_MONEY.search(text):
        return text, LIMIT
    if status in LOCKED_OUT or error == "authentication_failed" or any(word in text.lower() for word in NO_KEY):
        return text, SET_UP
    return text, FAILURE


def _metrics(order: SoldierOrder, end: Mapping[str, Any]) -> dict[str, Any]:
    """Return what this run used. After a resume the cost is the whole session's, the tokens are not."""
    tokens = _tokens(end.get("usage"))
    before = order.session_totals.get("cost_usd", 0.0)
    return {"cost_usd": round(max(0.0, _number(end.get("total_cost_usd")) - before), 6), "tokens_used": tokens}


def _tokens(usage: Any) -> int:
    known = usage if isinstance(usage, dict) else {}
    return sum(int(_number(known.get(kind))) for kind in TOKENS)


def _tokens_of(event: Mapping[str, Any]) -> dict[str, int]:
    """Return the tokens of one answer of the model by its id: each of its parts repeats them."""
    message = event.get("message")
    return {str(message.get("id")): _tokens(message.get("usage"))} if isinstance(message, dict) else {}


def _denials(end: Mapping[str, Any]) -> Iterator[str]:
    for denial in (end.get("permission_denials") or ())[:MOST_DENIALS]:
        text = json.dumps(denial.get("tool_input"), ensure_ascii=False)
        yield f"it was not allowed to use {denial.get('tool_name')}: {text[:200]}"


def _reset(limit: Any) -> float | None:
    """Return when a limit that was met ends; one that only draws near is no limit."""
    if not isinstance(limit, dict) or limit.get("status") != "rejected":
        return None
    return _number(limit.get("resetsAt")) or None


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e15 else 0.0


def _texts(event: Mapping[str, Any]) -> Iterator[str]:
    for block in _blocks(event):
        if block.get("type") == "text" and block.get("text"):
            yield str(block["text"])


def _blocks(event: Mapping[str, Any]) -> list[dict[str, Any]]:
    message = event.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _lines_of(event: Mapping[str, Any]) -> Iterator[str]:
    """Yield what people see of an event."""
    match event["type"], event.get("subtype"):
        case "system", "init":
            yield f"· {event.get('model')} begins"
        case "system", "api_retry":
            yield f"· retries: {event.get('error')} {event.get('error_status') or ''}".rstrip()
        case "system", "permission_denied":
            yield f"! {event.get('message')}"
        case "assistant", _:
            yield from _texts(event)
            for block in _blocks(event):
                if block.get("type") == "tool_use":
                    yield f"> {block.get('name')} {json.dumps(block.get('input'), ensure_ascii=False)[:300]}"
        case "user", _:
            for block in _blocks(event):
                if block.get("type") == "tool_result" and block.get("is_error"):
                    yield f"! {str(block.get('content'))[:300]}"
        case "result", _:
            yield f"· ends: {event.get('terminal_reason') or event.get('subtype')}, {event.get('total_cost_usd')} USD"
