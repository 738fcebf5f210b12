"""opencode, which speaks to any model. Its options and words were checked against the published package."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kingdom.base.records.soldiers import SoldierOrder
from kingdom.court.soldiers.engines import endings, programs
from kingdom.court.soldiers.engines.base import Engine, NeedsSetUp
from kingdom.court.soldiers.engines.endings import FAILURE, LIMIT, SET_UP, Ending

if TYPE_CHECKING:
    from kingdom.base.home.manifests import Manifest
    from kingdom.court.soldiers.engines.base import Surroundings

NAME = "opencode"
KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENROUTER_API_KEY")
NATIVES = ("opencode-linux-*/bin/opencode", "opencode-ai/node_modules/opencode-linux-*/bin/opencode")
PROVIDER = "kingdom"
SWITCHES = {
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "OPENCODE_DISABLE_MODELS_FETCH": "1",
    "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
}
_LIMIT = re.compile(
    r"rate.?limit|too many requests|insufficient.quota|quota exceeded|exceeded your (current )?quota|usage limit"
    r"|credit balance|(insufficient|out of|more) credits|\boverloaded\b",
    re.IGNORECASE,
)
_SET_UP = re.compile(
    r"\b401 unauthorized|(incorrect|invalid)[ _]api[ _]key|authentication[ _](error|failed)", re.IGNORECASE
)
LIMITS, LOCKED_OUT = frozenset({429, 529}), frozenset({401, 403})


class Opencode(Engine):
    variables = (*KEYS, *programs.PROXIES)
    kept = (".local/share/opencode",)
    reserves_mb = 4096

    def program(self, services: Surroundings, manifest: Manifest) -> str:
        from kingdom.court.soldiers import owner  # more than a soldier should load

        program = programs.find(NAME, str(services.system["runtime"][NAME]["command"]), NATIVES)
        if not owner.has_variable(services, KEYS):
            raise NeedsSetUp(why=f"the engine opencode has no key: put {' or '.join(KEYS)} into .env")
        return program

    def account(self, general: str) -> str:
        return NAME

    def environment(self, order: SoldierOrder) -> Mapping[str, str]:
        settings: dict[str, Any] = {"autoupdate": False, "share": "disabled"}
        if (address := order.settings.get("base_url")) is not None:
            model = str(order.settings.get("model"))
            options = {"baseURL": address, "apiKey": f"{{env:{KEYS[0]}}}"}
            about = {"npm": "@ai-sdk/openai-compatible", "name": PROVIDER, "options": options, "models": {model: {}}}
            settings |= {"provider": {PROVIDER: about}, "small_model": f"{PROVIDER}/{model}"}
        return {**SWITCHES, "OPENCODE_CONFIG_CONTENT": json.dumps(settings)}

    def argv(self, order: SoldierOrder) -> list[str]:
        return [order.program, "run", *_words(order)]

    def result(self, order: SoldierOrder, exit_code: int) -> Mapping[str, Any] | None:
        return endings.result(order, _ending(order, exit_code))

    def readable(self, line: str) -> str | None:
        event = endings.event_of(line)
        if event is None or "sessionID" not in event:
            return None
        return "\n".join(_lines_of(event))


def _words(order: SoldierOrder) -> Iterator[str]:
    yield from ("--format", "json")
    if order.sandbox:
        yield "--auto"
    if (model := order.settings.get("model")) is not None:
        yield from ("--model", f"{PROVIDER}/{model}" if order.settings.get("base_url") else str(model))
    if order.session_id:
        yield from ("--session", order.session_id)


def _ending(order: SoldierOrder, exit_code: int) -> Ending | None:
    """Return what it said of its run; None when it said nothing at all."""
    text, error, kind, reason = "", "", FAILURE, ""
    session: str | None = None
    usd, tokens = 0.0, 0
    for event in endings.events(order.out):
        session = str(event["sessionID"]) if event.get("sessionID") else session
        part = event.get("part")
        part = part if isinstance(part, dict) else {}
        match event.get("type"):
            case "text":
                text = str(part.get("text") or "")
            case "step_finish":
                reason = str(part.get("reason"))
                usd += float(part.get("cost") or 0)
                tokens += int((part.get("tokens") or {}).get("total") or 0)
            case "error":
                error, kind = _why(event.get("error"))
    if session is None:
        return None
    ending = Ending(text, session_id=session, metrics={"tokens_used": tokens, **({"cost_usd": usd} if usd else {})})
    if error:
        return ending._replace(error=error, kind=kind)
    if exit_code or reason != "stop":
        return ending._replace(error=endings.cut_short(NAME, exit_code))
    return ending


def _why(error: object) -> tuple[str, str]:
    """Return why it failed, in its words, and what kind of an error that is."""
    about: dict[str, Any] = error if isinstance(error, dict) else {}
    known = about.get("data")
    data: dict[str, Any] = known if isinstance(known, dict) else {}
    text = str(data.get("message") or about.get("message") or about.get("name") or error)
    status = data.get("statusCode")
    if status in LIMITS or _LIMIT.search(text):
        return text, LIMIT
    return text, SET_UP if status in LOCKED_OUT or _SET_UP.search(text) else FAILURE


def _lines_of(event: Mapping[str, Any]) -> Iterator[str]:
    """Yield what people see of an event."""
    part = event.get("part")
    part = part if isinstance(part, dict) else {}
    match event.get("type"):
        case "text":
            yield str(part.get("text"))
        case "tool_use":
            state = part.get("state") or {}
            yield f"> {part.get('tool')} {json.dumps(state.get('input'), ensure_ascii=False)[:300]}"
        case "error":
            yield f"! {_why(event.get('error'))[0]}"
