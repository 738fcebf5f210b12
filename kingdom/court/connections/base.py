"""What a service is to `kingdom connect` and `kingdom doctor`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from kingdom.base.errors import KingdomError
from kingdom.base.home.places import Places

MISSHAPEN = (LookupError, TypeError, ValueError, AttributeError)
"""What reading an answer of an unexpected shape may raise."""


class ServiceError(KingdomError):
    """{service}: {why}"""


class ServiceDown(ServiceError):
    """{service} cannot be reached: {why}"""


class ServiceRefused(ServiceError):
    """{service} refuses: {why}"""


class ServiceLimited(ServiceError):
    """{service} asks for a pause of {seconds:.0f} s: {why}"""

    @property
    def seconds(self) -> float:
        """Return how long to ask nothing."""
        return float(str(self.facts["seconds"]))

    @property
    def is_named(self) -> bool:
        """Return whether the service has named that time; else it is our guess."""
        return bool(self.facts["named"])


@dataclass(frozen=True)
class Needed:
    """A line of `.env` that a connection needs."""

    name: str
    #: What it is, as a prompt says it.
    what: str
    #: Typed without an echo, and shown nowhere.
    is_secret: bool = True
    #: It may be left out; a service of which all may be left out takes any of them.
    is_optional: bool = False
    #: Other names under which it is found as well.
    also: tuple[str, ...] = ()

    def value(self, secrets: Mapping[str, str]) -> str:
        """Return what `.env` says, or ""."""
        return next((secrets[name] for name in (self.name, *self.also) if secrets.get(name)), "")


class Service(Protocol):
    """What a row of SERVICES makes. It is made without arguments, and knows nothing until it is asked."""

    #: What it is needed for, in a few words.
    serves: str
    #: Where to make the token and which scopes it has to have, a line for each step.
    guide: str

    @property
    def needs(self) -> tuple[Needed, ...]:
        """Return the lines of `.env`, in the order in which they are asked for."""

    def try_it(self, places: Places, secrets: Mapping[str, str]) -> str:
        """Ask the service who we are, and return what was seen in one sentence without any secret.

        ServiceRefused when it does not take the token, ServiceDown when that cannot be known now. It takes at
        most some seconds.
        """


def tried(name: str, service: Service, places: Places, secrets: Mapping[str, str]) -> str:
    """Try a service, and return what was seen. ServiceDown also when it answers in another shape."""
    try:
        return service.try_it(places, secrets)
    except MISSHAPEN as error:
        raise ServiceDown(
            service=name, why=f"its answer has an unknown format ({type(error).__name__}: {error})"
        ) from None


def is_set_up(service: Service, secrets: Mapping[str, str]) -> bool:
    """Return whether `.env` holds all that a service needs."""
    complete = all(need.is_optional or need.value(secrets) for need in service.needs)
    return complete and is_begun(service, secrets)


def is_begun(service: Service, secrets: Mapping[str, str]) -> bool:
    """Return whether `.env` holds anything of it."""
    return any(need.value(secrets) for need in service.needs)
