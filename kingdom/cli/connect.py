"""`kingdom connect`: ask for a service's token, try it, and store it in `.env`."""

from __future__ import annotations

import sys
from collections.abc import Mapping

import click

from kingdom.base.disk.codec import LARGEST, read_bytes
from kingdom.base.errors import BadInput, Exit, KingdomError
from kingdom.base.home import dotenv
from kingdom.base.home.places import Places
from kingdom.base.program import home
from kingdom.base.words import one_line, table
from kingdom.cli import complete, services
from kingdom.court.connections.base import Needed, Service, ServiceError, ServiceRefused, is_begun, is_set_up, tried

LONGEST_VALUE = 4096


class NotTaken(KingdomError):
    """{why}"""


@click.command(short_help="Enter a service's token and try it.")
@click.argument("service", required=False, metavar="[SERVICE]", shell_complete=complete.services)
@click.option("--check", is_flag=True, help="Try the tokens in .env, without asking for new ones.")
def connect(service: str | None, check: bool) -> int:
    """Connect the kingdom to SERVICE, or list the services.

    Prints which token the service needs, asks for it (or reads stdin, one line per value), tries it, and stores it in
    .env, which only you can read. An empty value changes nothing. Tokens are never arguments, because other users could
    read them. Exit code 1 if the service refuses.
    """
    places = home.find()
    places.check()
    if service is None:
        print(_listed(places))
        return Exit.DONE
    chosen = services.load(service)
    secrets = _known(places)
    if check:
        try:
            print(f"{service}: {_shown(tried(service, chosen, places, secrets), secrets)}")
        except ServiceError as error:
            raise NotTaken(why=_shown(error, secrets)) from None
        return Exit.DONE
    print(chosen.guide, flush=True)
    given = _given(chosen.needs, secrets)
    return _keep_what_works(places, service, chosen, {**secrets, **given}, given)


def _known(places: Places) -> dict[str, str]:
    from kingdom.cli import engine_services  # which knows the engines: more than completion should load

    return engine_services.known(places, dotenv.secrets(places))


def _listed(places: Places) -> str:
    secrets = _known(places)
    all_of_them = {name: services.load(name) for name in services.SERVICES}
    rows = [(name, _state(service, secrets), service.serves) for name, service in all_of_them.items()]
    return f"{table(rows, indent='')}\n`{home.command()} connect SERVICE` sets one up, --check tries it"


def _state(service: Service, secrets: Mapping[str, str]) -> str:
    if is_set_up(service, secrets):
        return "set up"
    return "incomplete" if is_begun(service, secrets) else "not set up"


def _given(needs: tuple[Needed, ...], secrets: Mapping[str, str]) -> dict[str, str]:
    """Ask for each value. Return those that were given, by their names in `.env`."""
    given: dict[str, str] = {}
    for need in needs:
        value = _asked(need, known=bool(need.value(secrets))).strip()
        if len(value) > LONGEST_VALUE:
            raise BadInput(message=f"{need.name}: {len(value)} characters, more than {LONGEST_VALUE}")
        if value:
            given[need.name] = value
        elif not need.value(secrets) and not need.is_optional:
            raise BadInput(message=f"{need.name}: nothing was given; nothing has been changed")
    return given


def _asked(need: Needed, known: bool) -> str:
    if not sys.stdin.isatty():
        return sys.stdin.readline(LONGEST_VALUE + 2)
    also = " (empty: as it is)" if known else " (may be empty)" if need.is_optional else ""
    value: str = click.prompt(
        f"{need.name}, {need.what}{also}", default="", show_default=False, hide_input=need.is_secret
    )
    return value


def _keep_what_works(
    places: Places, name: str, service: Service, secrets: Mapping[str, str], given: Mapping[str, str]
) -> int:
    """Try the values first: what the service refuses is not kept. Of one that cannot be reached it is not known."""
    try:
        seen = tried(name, service, places, _to_try(service, secrets, given))
    except ServiceRefused as error:
        raise BadInput(message=f"{_shown(error, secrets)}; nothing has been changed") from None
    except ServiceError as error:
        _write(places, given)
        print(f"{name}: not tried, {_shown(error, secrets)}. {_kept(places, given)}; `--check` tries it again")
        return Exit.FAILED
    _write(places, given)
    print(f"{name}: {_shown(seen, secrets)}. {_kept(places, given)}; running roles take it over by themselves")
    return Exit.DONE


def _to_try(service: Service, secrets: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """Return what to try: of values that stand for each other those alone that were given now."""
    if not given or not all(need.is_optional for need in service.needs):
        return dict(secrets)
    known = {name for need in service.needs for name in (need.name, *need.also)}
    return {name: value for name, value in secrets.items() if name in given or name not in known}


def _kept(places: Places, given: Mapping[str, str]) -> str:
    return f"Kept in {places.env_file}" if given else "There was nothing new to keep"


def _shown(text: object, secrets: Mapping[str, str]) -> str:
    """Return what a service has said as one line; it may repeat what it was asked."""
    return one_line(dotenv.hide(str(text), secrets.values()), 300)


def _write(places: Places, given: Mapping[str, str]) -> None:
    try:
        text = read_bytes(places.env_file, LARGEST).decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        text = ""
    whole = dotenv.with_values(text, given)
    if whole != text:
        home.disk(places).rewrite(places.env_file, whole.encode("utf-8", "surrogateescape"))
