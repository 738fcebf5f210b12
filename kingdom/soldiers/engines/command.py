"""The embedded engine: the general's own executable. It reads the prompt and writes its result itself."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kingdom.disk.codec import read_json
from kingdom.home.places import PROGRAM
from kingdom.records.soldiers import SoldierOrder
from kingdom.soldiers.engines.base import LARGEST_RESULT, NeedsSetUp

if TYPE_CHECKING:
    from kingdom.home.manifests import Manifest
    from kingdom.soldiers.engines.base import Surroundings


class Command:
    variables = ()

    def program(self, services: Surroundings, manifest: Manifest) -> str:
        from kingdom.home.manifests import program_misfit  # more than a soldier should load

        program = services.places.package(manifest.name) / PROGRAM
        if not os.access(program, os.X_OK):
            why = "no language model is set up as its engine, and it has no executable `run` of its own"
            raise NeedsSetUp(why=f"{manifest.name} has nobody to do the work: {why} ({program})")
        if program.is_file() and (misfit := program_misfit(program)) is not None:
            raise NeedsSetUp(why=misfit)
        return str(program)

    def account(self, general: str) -> str:
        """Each general's program has its own."""
        return f"command:{general}"

    def warnings(self, manifest: Manifest) -> list[str]:
        plugins = ", ".join(manifest.cc_plugins)
        return [f"cc_plugins ({plugins}) are for the engine claude, which did not do this work"] if plugins else []

    def argv(self, order: SoldierOrder) -> list[str]:
        return [order.program]

    def result(self, order: SoldierOrder, exit_code: int) -> Mapping[str, Any] | None:
        try:
            return read_json(order.result_path, LARGEST_RESULT)
        except FileNotFoundError:
            return None
