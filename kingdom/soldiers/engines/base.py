"""What an engine says of itself: its program, its account, its command line, and what its end means.

The process that serves a soldier loads the engine too, so its file loads the standard library alone; what the methods
for the general need besides is imported inside them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from kingdom.disk.codec import LARGEST
from kingdom.errors import KingdomError
from kingdom.records.soldiers import SoldierOrder

if TYPE_CHECKING:
    from kingdom.home.config import Config
    from kingdom.home.manifests import Manifest
    from kingdom.home.places import Places

LARGEST_RESULT = LARGEST // 2
"""The raw report that it is wrapped in, and the result that comes of it, must pass the same reader."""


class NeedsSetUp(KingdomError):
    """needs set-up: {why}"""


class Surroundings(Protocol):
    """By what an engine is chosen. The services of a role have it."""

    @property
    def places(self) -> Places: ...

    @property
    def system(self) -> Config: ...

    @property
    def secrets(self) -> Mapping[str, str]: ...


class Engine(Protocol):
    @property
    def variables(self) -> Sequence[str]:
        """Variables, from `.env` or the environment, that its program sees beside those in the manifest's `env`."""

    def program(self, services: Surroundings, manifest: Manifest) -> str:
        """Return the path of the program to start. NeedsSetUp says what is missing."""

    def account(self, general: str) -> str:
        """Return whose quota and money this general's soldiers use."""

    def warnings(self, manifest: Manifest) -> list[str]:
        """Return a sentence for each field of the manifest that is of no use to this engine."""

    def argv(self, order: SoldierOrder) -> list[str]:
        """Return the program and its arguments. The prompt comes on standard input, never on the command line."""

    def result(self, order: SoldierOrder, exit_code: int) -> Mapping[str, Any] | None:
        """Return what the engine reports after its end; None when there is nothing. BadFile when it is unfit."""
