"""Maps what stands beside the package to `kingdom/data/` in the wheel: the tree holds it once.

Only what git knows is packed, and config/ and generals/ as they were committed: a checkout may be a home in use.
Without git (a source archive), generals/shipped.sha256 names what belongs to generals/.
"""

import subprocess
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

DATA = ("schemas", "config/default", "generals", "supervisord.conf", "bin", "deploy", "scripts")
OWNERS = ("config/default", "generals")
"""What an owner may have changed where it stands."""
DIGESTS = "generals/shipped.sha256"


class WheelData(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        self._drafts = tempfile.TemporaryDirectory(prefix="kingdom-wheel-")
        root = Path(self.root)
        known = in_git(root) or in_archive(root)
        for name in known:
            build_data["force_include"][str(self._pristine(root, name))] = f"kingdom/data/{name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if version != "editable":
            self._drafts.cleanup()

    def _pristine(self, root: Path, name: str) -> Path:
        """Return the file to pack: the one in the tree, or as it was committed if its owner has changed it."""
        source = root / name
        if not name.startswith(OWNERS):
            return source
        committed = git(root, "show", f"HEAD:{name}")
        if committed is None or (source.is_file() and committed == source.read_bytes()):
            return source
        self.app.display_warning(f"{name} was changed here; it is packed as it was committed")
        draft = Path(self._drafts.name) / name
        draft.parent.mkdir(parents=True, exist_ok=True)
        draft.write_bytes(committed)
        is_program = (git(root, "ls-tree", "HEAD", "--", name) or b"").startswith(b"100755")
        draft.chmod(0o755 if is_program else 0o644)
        return draft


def in_git(root: Path) -> list[str]:
    """Return the files that git knows; none where this is no checkout."""
    top = git(root, "rev-parse", "--show-toplevel")
    if top is None or not root.samefile(top.decode().strip()):
        return []
    listed = git(root, "ls-files", "-z", "--", *DATA) or b""
    return [name for name in listed.decode().split("\0") if name]


def in_archive(root: Path) -> list[str]:
    """Return the files of a source archive; of generals/ those that were shipped, unchanged."""
    found = [path for name in DATA for path in (root / name, *sorted((root / name).rglob("*"))) if path.is_file()]
    lines = (root / DIGESTS).read_text("utf-8").splitlines()
    newest = {
        f"generals/{name}": digest for digest, name in (line.split() for line in lines if line[:1] not in ("", "#"))
    }
    names = [path.relative_to(root).as_posix() for path in found if "__pycache__" not in path.parts]
    kept = [name for name in names if not name.startswith("generals/") or name in newest or name == DIGESTS]
    for name in kept:
        if name in newest and sha256((root / name).read_bytes()).hexdigest() != newest[name]:
            raise ValueError(f"{name} is not as it was shipped: build from a checkout, or put the shipped file back")
    return kept


def git(root: Path, *words: str) -> bytes | None:
    """Return what git says; None when it cannot."""
    try:
        done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout
