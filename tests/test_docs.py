"""What is made from the code is as the code is: the reference, the man pages and the site."""

from __future__ import annotations

import json
import re
import runpy
import shutil
import subprocess
import sys
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
import yaml

from kingdom import __version__
from kingdom.base.home import schemas

CHECKOUT = Path(__file__).resolve().parent.parent
PAGES = runpy.run_path(str(CHECKOUT / "bin" / "reference"))["pages"]()
FOREIGN = re.compile(r"""(?:src=|<link[^>]*href=|url\(|import\s|fetch\()\s*["']?(?:https?:)?//""")


@pytest.mark.parametrize("name", PAGES)
def test_the_reference_is_as_the_code_is(name: str) -> None:
    assert (CHECKOUT / "docs" / "reference" / name).read_text() == PAGES[name], "make docs writes it anew"


def test_the_changelog_dates_this_version_and_collects_what_comes_after_it() -> None:
    heads = re.findall(r"^## (.+)$", (CHECKOUT / "CHANGELOG.md").read_text(), re.MULTILINE)
    released = re.fullmatch(r"(\S+) \((\d{4}-\d\d-\d\d)\)", heads[1])
    assert heads[0] == "Unreleased"
    assert released is not None
    assert released[1] == __version__
    assert date.fromisoformat(released[2]) <= datetime.now(UTC).date()


def test_every_key_of_the_configuration_says_what_it_means() -> None:
    rows = [line for line in PAGES["config.md"].splitlines() if line.startswith("| `")]
    assert len(rows) > 100
    assert [row for row in rows if row.endswith("|  |")] == []


def test_the_file_of_the_hall_shows_every_setting_with_its_default() -> None:
    text = (CHECKOUT / "config" / "default" / "hall.yaml").read_text()
    defaults = schemas.with_defaults(schemas.load("config/hall"), {})
    shown = re.sub(rf"^# (?=({'|'.join(defaults)}):| +\w+:)", "", text, flags=re.MULTILINE)
    assert yaml.safe_load(shown) == defaults


@pytest.mark.parametrize("name", [name for name in PAGES if name.endswith(".1")])
def test_a_man_page_is_set_without_a_warning(name: str) -> None:
    if shutil.which("groff") is None:
        pytest.skip("GROFF IS NOT INSTALLED: MAN PAGES ARE NOT CHECKED")
    done = subprocess.run(["groff", "-ww", "-man", "-Tutf8", "-"], input=PAGES[name].encode(), capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    assert len(done.stdout.splitlines()) > 100


def test_the_site_has_no_dead_link_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    source = tmp_path / "build" / "site-source"
    source.mkdir(parents=True)
    for name in re.search(r"@cp -R (.*) build/site-source", (CHECKOUT / "Makefile").read_text())[1].split():  # type: ignore[index]
        copy = shutil.copytree if (CHECKOUT / name).is_dir() else shutil.copy
        copy(CHECKOUT / name, source / name)
    (tmp_path / "docs").mkdir()
    shutil.copy(CHECKOUT / "docs" / "site.yml", tmp_path / "docs")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "-f", "docs/site.yml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr
    site = tmp_path / "build" / "site"
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 20
    assert [page.name for page in pages if FOREIGN.search(page.read_text())] == []
    found = json.loads((site / "search" / "search_index.json").read_text())["docs"]
    assert any("max_soldiers" in part["text"] for part in found)
