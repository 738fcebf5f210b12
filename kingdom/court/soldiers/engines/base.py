"""The contract of an engine: its program, its account, its command line, and what its end means.

The process that serves a soldier loads the engine too, so its file loads the standard library alone; what the methods
for the general need besides is imported inside them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from kingdom.base.disk.codec import LARGEST
from kingdom.base.errors import KingdomError
from kingdom.base.records.soldiers import SoldierOrder

if TYPE_CHECKING:
    from pathlib import Path

    from kingdom.base.home.config import Config
    from kingdom.base.home.manifests import Manifest
    from kingdom.base.home.places import Places

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
    variables: Sequence[str] = ()
    """Variables, from `.env` or the environment, that its program sees beside those in the manifest's `env`."""
    is_model: bool = True
    """Whether a model reads the prompt: it is told how to report, and its program gets a HOME of its own."""
    kept: Sequence[str] = ()
    """Folders of that HOME which hold its sessions. All else in it is made anew for each run."""
    reserves_mb: int = 0
    """Memory that its program reserves and does not use: the bound on what it may map is wider by so much."""

    def program(self, services: Surroundings, manifest: Manifest) -> str:
        """Return the path of the program to start. NeedsSetUp says what is missing."""

    def account(self, general: str) -> str:
        """Return whose quota and money this general's soldiers use."""

    def warnings(self, services: Surroundings, manifest: Manifest) -> list[str]:
        """Return a sentence for each field of the manifest that is of no use to this engine."""
        plugins = ", ".join(manifest.cc_plugins)
        return [f"cc_plugins ({plugins}) are for the engine claude, which was not used"] if plugins else []

    def furnish(self, services: Surroundings, manifest: Manifest, home: Path) -> None:
        """Lay into its HOME what the configuration lets it have of the owner's."""

    def environment(self, order: SoldierOrder) -> Mapping[str, str]:
        """Return variables that its program needs and that are no secret."""
        return {}

    def argv(self, order: SoldierOrder) -> list[str]:
        """Return the program and its arguments. The prompt comes on standard input, never on the command line."""

    def result(self, order: SoldierOrder, exit_code: int) -> Mapping[str, Any] | None:
        """Return what the engine reports after its end; None when there is nothing. BadFile when it is unfit."""

    def readable(self, line: str) -> str | None:
        """Return what a line of its output says, "" for nothing; None for a line that is not of this engine."""
