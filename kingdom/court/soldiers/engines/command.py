"""The embedded engine: the general's own executable. It reads the prompt and writes its result itself."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kingdom.base.home.places import PROGRAM
from kingdom.base.records.soldiers import SoldierOrder
from kingdom.court.soldiers.engines import endings
from kingdom.court.soldiers.engines.base import Engine, NeedsSetUp

if TYPE_CHECKING:
    from kingdom.base.home.manifests import Manifest
    from kingdom.court.soldiers.engines.base import Surroundings


class CommandEngine(Engine):
    is_model = False

    def program(self, services: Surroundings, manifest: Manifest) -> str:
        from kingdom.base.home.manifests import program_misfit  # more than a soldier should load

        program = services.places.package(manifest.name) / PROGRAM
        if not os.access(program, os.X_OK):
            why = "no language model is set up as its engine, and it has no executable `run` of its own"
            raise NeedsSetUp(why=f"{manifest.name} cannot work: {why} ({program})")
        if program.is_file() and (misfit := program_misfit(program)) is not None:
            raise NeedsSetUp(why=misfit)
        return str(program)

    def account(self, general: str) -> str:
        """Return an account of the general's own: its program shares no limits with others."""
        return f"command:{general}"

    def argv(self, order: SoldierOrder) -> list[str]:
        return [order.program, *order.arguments]

    def result(self, order: SoldierOrder, exit_code: int) -> Mapping[str, Any] | None:
        return endings.written(order)

    def readable(self, line: str) -> str | None:
        return None
