"""What of the owner's a soldier may be given, and what in it is secret."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from kingdom.court.soldiers import owner

LONG, SHORT = "t" * 20, "t" * 19


@pytest.fixture
def owners(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(home / "owner"))
    (home / "owner/.claude/plugins").mkdir(parents=True)
    (home / "owner/.codex").mkdir()
    return home / "owner"


def brings(*names: str) -> dict[str, Any]:
    return {"bring": list(names), "git": {}}


@pytest.mark.parametrize(
    ("signed_in", "tokens"),
    [
        ({"a": LONG}, [LONG]),
        ({"a": SHORT}, []),
        ({"a": {"b": [{"c": LONG}, 7, None]}}, [LONG]),
        ([LONG, f"{LONG}2"], [LONG, f"{LONG}2"]),
    ],
)
def test_every_long_text_in_what_the_owner_is_signed_in_with_is_a_token(
    owners: Path, signed_in: Any, tokens: Iterable[str]
) -> None:
    (owners / ".codex/auth.json").write_text(json.dumps({"of": signed_in}))
    assert sorted(owner.lent_secrets(brings("credentials"))) == sorted(tokens)
    assert owner.lent_secrets(brings()) == []


def test_plugins_are_the_enabled_ones_whose_folder_is_there(owners: Path) -> None:
    folder = owners / "here"
    folder.mkdir()
    here, gone = {"installPath": str(folder)}, {"installPath": str(owners / "gone")}
    rows = {"a@m": [gone, here], "b@m": here, "c@m": gone, "d@m": here}
    enabled = {"a@m": True, "b@m": True, "c@m": True, "d@m": False, "e@m": True}
    (owners / ".claude/settings.json").write_text(json.dumps({"enabledPlugins": enabled}))
    (owners / ".claude/plugins/installed_plugins.json").write_text(json.dumps({"plugins": rows}))
    found = owner.claude_plugins(brings("plugins"))
    assert found == {"a@m": folder, "b@m": folder}
    assert owner.claude_plugins(brings()) == {}
    assert [owner.plugin(found, name) for name in ("a", "a@m", "c", "m")] == [folder, folder, None, None]


@pytest.mark.parametrize(
    ("config", "identity"),
    [
        ("", None),
        ("[core]\n\tpager = x\n", None),
        ("[user]\n\tname = Ann\n\tsigningkey = secret\n", '[user]\n\tname = "Ann"\n'),
        ("[user]\n\temail = a@b.c\n\tname = Ann B\n", '[user]\n\temail = "a@b.c"\n\tname = "Ann B"\n'),
    ],
)
def test_of_the_owners_git_a_soldier_gets_the_name_and_the_address_and_nothing_else(
    owners: Path, monkeypatch: pytest.MonkeyPatch, config: str, identity: str | None
) -> None:
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.delenv("GIT_CONFIG_GLOBAL", raising=False)
    (owners / ".gitconfig").write_text(config)
    assert owner.git_identity(brings("git")) == identity
    assert owner.git_identity(brings()) is None


def test_what_is_laid_into_a_home_is_a_private_file_a_link_or_a_copy_that_spares_what_is_there(home: Path) -> None:
    (home / "of-package/deep").mkdir(parents=True)
    (home / "of-package/deep/new.md").write_text("new")
    (home / "of-package/old.md").write_text("new")
    (home / "soldier/skills").mkdir(parents=True)
    (home / "soldier/skills/old.md").write_text("old")
    lays = owner.Furnishing(home / "soldier")
    lays.write("a/secret.json", "{}")
    lays.link("b/folder", home / "of-package")
    lays.copy("skills", home / "of-package")
    assert (home / "soldier/a/secret.json").stat().st_mode & 0o777 == 0o600
    assert (home / "soldier/b/folder").readlink() == home / "of-package"
    copied = {name: (home / "soldier/skills" / name).read_text() for name in ("old.md", "deep/new.md")}
    assert copied == {"old.md": "old", "deep/new.md": "new"}
    with pytest.raises(FileExistsError):
        lays.write("a/secret.json", "another")
