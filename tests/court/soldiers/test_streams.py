"""What a soldier printed is kept without secrets, no larger than allowed, whatever it has done to the files."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import pytest

from kingdom.base.home.places import find_data
from kingdom.base.records.soldiers import SoldierOrder
from kingdom.court.soldiers import streams

SECRET = 'sesame "open" 3f9a'


@pytest.fixture
def order(home: Path) -> SoldierOrder:
    names = dict.fromkeys(SoldierOrder._fields, "")
    paths = {name: str(home / name) for name in ("prompt", "out", "err")}
    for path in paths.values():
        Path(path).touch()
    return SoldierOrder(**{**names, **paths})  # type: ignore[arg-type]


@pytest.mark.parametrize("at", [0, 5, streams._PART - 1, streams._PART - 7, streams._PART, 3 * streams._PART - 3])
def test_a_secret_is_written_over_wherever_it_stands(order: SoldierOrder, at: int) -> None:
    Path(order.out).write_bytes(b"." * at + SECRET.encode() + b" and more")
    streams.repair(order, [SECRET])
    assert Path(order.out).read_bytes() == b"." * at + b"*" * len(SECRET) + b" and more"


def test_every_secret_in_every_form_and_not_a_byte_more(order: SoldierOrder) -> None:
    Path(order.err).write_text(f'{{"said": "sesame \\"open\\" 3f9a"}} {SECRET}{SECRET} 비밀번호1234 short sesame\n')
    streams.repair(order, [SECRET, "비밀번호1234", "short", f"{SECRET}-longer"])
    hidden = "*" * (len(SECRET) + 2), "*" * 2 * len(SECRET), "*" * len("비밀번호1234".encode())
    assert Path(order.err).read_text() == f'{{"said": "{hidden[0]}"}} {hidden[1]} {hidden[2]} short sesame\n'


def test_as_much_is_kept_as_the_guide_says(order: SoldierOrder) -> None:
    os.truncate(order.out, 65 << 20)
    streams.repair(order, [])
    kept = f"the first {os.stat(order.out).st_size >> 20} MB are kept"
    assert kept in (find_data() / "docs/generals.md").read_text()


def test_no_descriptor_is_left_open(order: SoldierOrder) -> None:
    before = os.listdir("/proc/self/fd")
    streams.repair(order, [SECRET])
    streams.hide_in(order.out, [SECRET.encode()])
    assert len(os.listdir("/proc/self/fd")) <= len(before)


def test_without_secrets_nothing_is_written(order: SoldierOrder) -> None:
    Path(order.out).write_text("as it was")
    os.utime(order.out, (1000, 1000))
    streams.repair(order, [])
    streams.repair(order, [SECRET])
    assert (Path(order.out).read_text(), os.stat(order.out).st_mtime) == ("as it was", 1000)


def test_the_prompt_is_not_written_over(order: SoldierOrder) -> None:
    Path(order.prompt).write_text(SECRET)
    streams.repair(order, [SECRET])
    assert Path(order.prompt).read_text() == SECRET


def test_modes_times_and_sizes_are_set_right(order: SoldierOrder) -> None:
    os.truncate(order.out, 8 * streams.LARGEST_OUTPUT)
    for path in (order.out, order.err):
        os.utime(path, (2**33, 2**33))
        os.chmod(path, 0)
    streams.repair(order, [SECRET])
    for path in (order.out, order.err):
        about = os.stat(path)
        assert stat.S_IMODE(about.st_mode) == 0o600
        assert about.st_mtime <= time.time() + 1
        assert about.st_size <= streams.LARGEST_OUTPUT


def test_what_is_no_plain_file_is_left_alone(order: SoldierOrder, home: Path) -> None:
    """One without a sandbox may have put anything there."""
    (home / "other").write_text(SECRET)
    for path in (order.out, order.err):
        os.unlink(path)
    os.symlink(home / "other", order.out)
    os.mkfifo(order.err, 0o640)
    streams.repair(order, [SECRET])
    assert (home / "other").read_text() == SECRET
    assert stat.S_IMODE(os.stat(order.err).st_mode) == 0o640
