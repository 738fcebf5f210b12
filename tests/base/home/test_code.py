"""Which code is installed: every change of the program shows, and nothing else does."""

from __future__ import annotations

import os
from pathlib import Path

from kingdom.base.home.code import installed_code


def test_every_change_of_the_program_shows_and_what_python_keeps_beside_it_does_not(tmp_path: Path) -> None:
    package = tmp_path / "kingdom"
    (package / "court").mkdir(parents=True)
    king, page = package / "king.py", package / "court" / "page.html"
    king.write_text("a = 1\n")
    page.write_text("<p>")
    seen = [installed_code(package)]
    for folder, name in ((package, "__pycache__"), (package, ".git")):
        (folder / name).mkdir()
        (folder / name / "king.pyc").write_text("compiled")
    assert installed_code(package) == seen[0]
    king.write_text("a = 10\n")
    seen.append(installed_code(package))
    os.utime(king, (1, 1))  # the same size, at another time
    seen.append(installed_code(package))
    page.rename(package / "page.html")
    seen.append(installed_code(package))
    (package / "page.html").unlink()
    seen.append(installed_code(package))
    assert len(set(seen)) == len(seen)


def test_the_installed_program_is_named_with_its_version() -> None:
    version, _, digest = installed_code().partition("+")
    assert version
    assert len(digest) == 8
