"""Model programs as services to connect to: a key, or the owner's login."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from kingdom.base import loopback
from kingdom.base.home import config
from kingdom.base.home.places import Places
from kingdom.base.times import stamp
from kingdom.court.connections.base import Needed, ServiceDown, ServiceError, ServiceRefused
from kingdom.court.connections.web import QUICK, Web
from kingdom.court.soldiers import owner
from kingdom.court.soldiers.engines import claude, codex, programs
from kingdom.court.soldiers.engines.base import NeedsSetUp

VERSION_SECONDS = 10.0
OF_CLAUDE, OF_CODEX = f"~/{claude.CREDENTIALS}", f"~/{codex.CREDENTIALS}"
"""Names under which a sign-in that is lent stands among the secrets."""


class Claude:
    serves = "soldiers with the engine claude use it"
    needs = (
        Needed(claude.KEYS[0], "API key (sk-ant-api…)", is_optional=True, also=(claude.KEYS[1],)),
        Needed(claude.KEYS[2], "or the token of `claude setup-token`", is_optional=True, also=(OF_CLAUDE,)),
    )
    guide = f"""\
One of three. An API key: console.anthropic.com, API keys. Or a token for your subscription: run `claude setup-token`.
Or nothing: leave both empty and be signed in with `claude`; then {OF_CLAUDE} is lent to soldiers without the
token that renews it (runtime.bring in config/system.yaml), and your own `claude` refreshes it when you use it."""

    def try_it(self, places: Places, secrets: Mapping[str, str]) -> str:
        """Ask for the list of models, which costs nothing, and the program for its version."""
        keys = _keys(self.needs, secrets, OF_CLAUDE)
        address = secrets.get("ANTHROPIC_BASE_URL") or "https://api.anthropic.com"
        if not keys:
            step = "give a key, or sign in with `claude`"
            raise ServiceRefused(service="claude", why=f"it has no key: {step}")
        _check_address("Anthropic", "ANTHROPIC_BASE_URL", address)
        version = _version(places, claude)
        for name in keys:
            by_key = {"x-api-key": secrets[name]}
            by_token = {"Authorization": f"Bearer {secrets[name]}", "anthropic-beta": "oauth-2025-04-20"}
            headers = {"anthropic-version": "2023-06-01", **(by_key if name == claude.KEYS[0] else by_token)}
            models = _models("Anthropic", address, "v1/models", headers, name)
        return f"{version}; {urlsplit(address).hostname} takes {_named(keys, OF_CLAUDE)}, {models}"


class Codex:
    serves = "soldiers with the engine codex use it"
    needs = (Needed(codex.KEYS[0], "API key (sk-…)", is_optional=True, also=(codex.KEYS[1], OF_CODEX)),)
    guide = f"""\
One of two. An API key: platform.openai.com, API keys; of a restricted key the permissions Models (read) and Responses
(write). Or nothing: leave it empty and be signed in with `codex login`; then {OF_CODEX} is lent to soldiers
without the token that renews it (runtime.bring in config/system.yaml), and your own `codex` refreshes it."""

    def try_it(self, places: Places, secrets: Mapping[str, str]) -> str:
        """Ask for the list of models, which costs nothing, and the program for its version."""
        keys = _keys(self.needs, secrets, OF_CODEX)
        if not keys:
            step = "give a key, or sign in with `codex login`"
            raise ServiceRefused(service="codex", why=f"it has no key: {step}")
        version = _version(places, codex)
        if keys == [OF_CODEX]:
            # What is signed in with speaks to another address, which answers the program alone.
            return f"{version}; {OF_CODEX} is lent{_until(secrets[OF_CODEX])}, and was not tried"
        settings = config.for_looking(places, "system")[0]["runtime"][codex.NAME]
        address = str(settings["base_url"] or codex.ADDRESS)
        _check_address("OpenAI", "runtime.codex.base_url in config/system.yaml", address)
        for name in keys:
            models = _models("OpenAI", address, "models", {"Authorization": f"Bearer {secrets[name]}"}, name)
        return f"{version}; {urlsplit(address).hostname} takes {_named(keys, OF_CODEX)}, {models}"


ENGINES = {claude.NAME: Claude, codex.NAME: Codex}


def known(places: Places, kept: Mapping[str, str]) -> dict[str, str]:
    """Return what `.env` keeps, with what engines find besides: variables, and what their owner is signed in with."""
    names = (*claude.KEYS, "ANTHROPIC_BASE_URL", *codex.KEYS)
    around = {name: os.environ[name] for name in names if os.environ.get(name)}
    return {**dict(_lent(config.for_looking(places, "system")[0]["runtime"])), **around, **kept}


def _lent(runtime: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    oauth = (owner.credentials(runtime, claude.CREDENTIALS) or {}).get("claudeAiOauth")
    if isinstance(oauth, dict) and isinstance(oauth.get("accessToken"), str):
        yield OF_CLAUDE, oauth["accessToken"]
    about = owner.credentials(runtime, codex.CREDENTIALS) or {}
    tokens = about.get("tokens")
    if isinstance(about.get(codex.KEYS[0]), str):
        yield codex.KEYS[0], about[codex.KEYS[0]]
    elif isinstance(tokens, dict) and isinstance(tokens.get("access_token"), str):
        yield OF_CODEX, tokens["access_token"]


def _keys(needs: tuple[Needed, ...], secrets: Mapping[str, str], lent: str) -> list[str]:
    """Return the names of what the program may sign in with; what is lent is of use only without the others."""
    names = [name for need in needs for name in (need.name, *need.also) if secrets.get(name)]
    return [name for name in names if name != lent] or names


def _named(keys: list[str], lent: str) -> str:
    return " and ".join(f"{name} (lent)" if name == lent else name for name in keys)


def _check_address(service: str, where: str, address: str) -> None:
    if not loopback.keeps_secrets(address):
        raise ServiceRefused(service=service, why=f"{where} must be an address that begins with https://")


def _models(service: str, address: str, path: str, headers: Mapping[str, str], key: str) -> str:
    """Return how many models a key may ask; ServiceRefused names the key that is not taken."""
    web = Web(service, address, headers, deadlines=QUICK)
    try:
        body = web.get(path).body
    except ServiceRefused as error:
        raise ServiceRefused(service=service, why=f"{key}: {error.facts['why']}") from None
    finally:
        web.close()
    found = body.get("data") if isinstance(body, dict) else None
    if not isinstance(found, list):
        raise ServiceDown(service=service, why="its list of models cannot be read")
    return f"{len(found)} models" if len(found) != 1 else "1 model"


def _version(places: Places, engine: Any) -> str:
    """Return which program would be started; ServiceError when there is none that starts."""
    command = str(config.for_looking(places, "system")[0]["runtime"][engine.NAME]["command"])
    try:
        path = programs.find(engine.NAME, command, engine.NATIVES)
        # No HOME and no key: it shall say who it is, and nothing else.
        around = {"PATH": os.environ.get("PATH", ""), "HOME": "/nonexistent"}
        asked = subprocess.run(
            [path, "--version"],
            env=around,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=VERSION_SECONDS,
        )
    except NeedsSetUp as error:
        raise ServiceError(service=engine.NAME, why=str(error.facts["why"])) from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ServiceError(service=engine.NAME, why=f"{path} does not start: {type(error).__name__}") from None
    if asked.returncode:
        raise ServiceError(service=engine.NAME, why=f"{path} --version ended with code {asked.returncode}")
    return asked.stdout.strip()


def _until(token: str) -> str:
    """Return when a token runs out, as far as it says so itself."""
    try:
        claims = token.split(".")[1]
        end = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["exp"]
        return f", until {stamp(float(end))}"
    except (IndexError, ValueError, KeyError, TypeError, OverflowError):
        return ""
