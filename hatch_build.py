"""Maps what stands beside the package to `kingdom/data/` in the wheel: the tree holds it once."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

DATA = ("schemas", "config", "generals", "supervisord.conf", "bin", "deploy")


class WheelData(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        root = Path(self.root)
        for name in DATA:
            if (root / name).exists():
                build_data["force_include"][str(root / name)] = f"kingdom/data/{name}"
