"""`kingdom prune`: delete old files now."""

from __future__ import annotations

import secrets
import time

import click

from kingdom.base.disk.atomic import make_folder
from kingdom.base.disk.codec import read_json_or, to_json
from kingdom.base.disk.lock import is_locked
from kingdom.base.errors import TookTooLong
from kingdom.base.home import config
from kingdom.base.home.places import Places
from kingdom.base.program import as_json, home
from kingdom.base.runtime.wake import Waker
from kingdom.base.words import count, table
from kingdom.court.soldiers.cleanup import remove_tree
from kingdom.court.steward.base import launching
from kingdom.court.upkeep.retention import Cleaning, Deleter

MEGABYTE = 1 << 20
SLICE_SECONDS = 1.0
LOOK_SECONDS = 0.2
LONGEST_SECONDS = 3600.0
PATIENCE_SECONDS = 60.0
"""How long the chamberlain may take to begin."""


@click.command(short_help="Delete old files now.")
@click.option("--dry-run", is_flag=True, help="Only count what would be deleted.")
@click.option("--json", "in_json", is_flag=True, help="Print it as one line of JSON.")
def prune(dry_run: bool, in_json: bool) -> None:
    """Delete files older than `retention` in chamberlain.yaml allows, without waiting for the night.

    Files that wait, are in progress, have failed, are in dead/ or belong to an open question or conversation are kept.
    While the chamberlain runs, it does the work.
    """
    places = home.own()
    places.check()
    if dry_run:
        deleted, size = _delete(places, dry_run=True)
    elif is_locked(places.lock("chamberlain")):
        deleted, size = _ask_the_chamberlain(places)
    else:
        with launching(places):
            deleted, size = _delete(places, dry_run=False)
    if in_json:
        print(as_json.line("prune", {"dry_run": dry_run, "deleted": deleted, "bytes": size}))
        return
    would = "would be deleted" if dry_run else "deleted"
    print(f"{count(sum(deleted.values()), 'file')} {would}, {size / MEGABYTE:.1f} MB.")
    if deleted:
        print(table([(what, number) for what, number in deleted.items()]))


def _delete(places: Places, dry_run: bool) -> tuple[dict[str, int], int]:
    days = config.load(places, "chamberlain")["retention"]
    deleter = None if dry_run else Deleter(home.disk(places), remove_tree)
    cleaning = Cleaning(places, days, time.time(), deleter)
    while cleaning.go_on(SLICE_SECONDS):
        continue
    return cleaning.tally.files, cleaning.tally.bytes


def _ask_the_chamberlain(places: Places) -> tuple[dict[str, int], int]:
    request, began = secrets.token_hex(8), time.monotonic()
    make_folder(places.cleanup_request.parent)
    home.disk(places).rewrite(places.cleanup_request, to_json({"id": request, "by": home.user()}))
    waker = Waker((), "poll")
    while True:
        said = read_json_or(places.cleanup, {})
        is_ours = said.get("request") == request
        if is_ours and said.get("state") == "done":
            return dict(said["deleted"]), int(said["bytes"])
        waited = time.monotonic() - began
        if waited > (LONGEST_SECONDS if is_ours else PATIENCE_SECONDS):
            hint = f"{places.cleanup} shows its progress"
            raise TookTooLong(what="end of the cleaning by the chamberlain", seconds=waited, hint=hint)
        waker.wait(LOOK_SECONDS)
