"""`kingdom generals`: list, check, install and uninstall generals."""

from __future__ import annotations

import shlex

import click

from kingdom.base.errors import Exit
from kingdom.base.home import manifests
from kingdom.base.home.manifests import Manifest
from kingdom.base.program import as_json, home
from kingdom.base.records.lookup import Found
from kingdom.base.words import count, one_line, table
from kingdom.cli import complete, launchers, new_general, packages
from kingdom.cli.queue_files import newest


@click.group(
    invoke_without_command=True,
    short_help="List, make, install and remove generals: ls, new, validate, install, uninstall.",
)
@click.pass_context
def generals(ctx: click.Context) -> int | None:
    """List the installed generals, add and remove them."""
    return ctx.invoke(list_generals) if ctx.invoked_subcommand is None else None


@generals.command("ls")
@click.option("--json", "in_json", is_flag=True, help="Print them as one line of JSON.")
def list_generals(in_json: bool = False) -> int:
    """List installed generals, available packages, and manifests that cannot be used.

    Exit code 1 if a manifest cannot be used.
    """
    places = home.find()
    good, bad = manifests.installed(places)
    others = packages.installable(places)
    if in_json:
        generals = [_facts(general, home.is_played(places, general.name)) for general in good]
        facts: dict[str, object] = {"generals": generals, "bad": [str(error) for error in bad]}
        facts["installable"] = [{"name": other.name, "description": other.description} for other in others]
        print(as_json.line("generals", facts))
        return Exit.FAILED if bad else Exit.DONE
    rows = [
        (
            general.name,
            "runs" if home.is_played(places, general.name) else "does not run",
            one_line(general.description),
        )
        for general in good
    ]
    rows += [(other.name, "not installed", one_line(other.description)) for other in others]
    print(table(rows, indent="") or f"none; `{home.command()} generals install PACKAGE` installs one")
    for error in bad:
        print(f"cannot be used: {error}")
    return Exit.FAILED if bad else Exit.DONE


@generals.command()
@click.argument("name")
def new(name: str) -> None:
    """Write a starter package for a general NAME. It is valid, and answers once it is installed."""
    places = home.find()
    name = new_general.full_name(name)
    package = new_general.write(places, home.disk(places), name)
    word = name.removeprefix("gen-")
    print(f"{package} has been written: look at its manifest.yaml and run.")
    print(f'Next: {home.command()} generals install {shlex.quote(str(package))} && {home.command()} say "{word} hello"')


@generals.command()
@click.argument("package")
def validate(package: str) -> None:
    """Check a general's PACKAGE (its folder or its name) without installing it."""
    manifest = packages.check(packages.find(home.find(), package))
    _tell_warnings(manifest)
    print(f"{manifest.name} can be installed: {_summary(manifest)}.")


@generals.command()
@click.argument("package")
def install(package: str) -> int:
    """Install the general of a PACKAGE (its folder or its name), or update it from a changed package.

    Returns when the general uses the new manifest. Exit code 1 if it does not come up.
    """
    places = home.find()
    places.check()
    manifest = packages.install(places, home.disk(places), packages.find(places, package))
    _tell_warnings(manifest)
    for claim, holder in packages.claimed_by_others(places, manifest):
        print(f"Note: {claim!r} belongs to {holder} already; {manifest.name} does not get it.")
    if (missing := packages.missing_engine(places, home.system(places), manifest)) is not None:
        print(f"Note: {missing}; until then its tasks are skipped.")
    why_not = launchers.take_over(places, manifest.name)
    print(f"{manifest.name} is installed: {_summary(manifest)}.")
    if why_not is not None:
        print(why_not)
    return Exit.DONE if why_not is None else Exit.FAILED


@generals.command()
@click.argument("name", shell_complete=complete.installed_generals)
def uninstall(name: str) -> None:
    """Uninstall a general. Its package and its memory stay."""
    places = home.find()
    packages.uninstall(places, home.disk(places), name)
    launchers.remove_role(places, name)
    print(
        f"{name} is uninstalled; `{home.command()} generals install {shlex.quote(str(places.package(name)))}` "
        "installs it again."
    )
    if left := [task.id for task in newest(places, "tasks", ("pending", "in_progress")) if _is_for(task, name)]:
        waiting = f"{count(len(left), 'task')} of it will wait until then, without counting against max_soldiers"
        print(f"{waiting}; `{home.command()} tasks cancel ID` ends one ({one_line(', '.join(left), 200)}).")


def _is_for(task: Found, general: str) -> bool:
    return bool(task.get("target_general") == general)


def _tell_warnings(manifest: Manifest) -> None:
    for warning in manifest.warnings:
        print(f"Note: {warning}.")


def _summary(manifest: Manifest) -> str:
    claims = [
        count(len(manifest.subscribes), "event type"),
        count(len(manifest.keywords), "word"),
        count(len(manifest.schedules), "schedule"),
    ]
    return ", ".join(claims)


def _facts(manifest: Manifest, runs: bool) -> dict[str, object]:
    return {
        "name": manifest.name,
        "description": manifest.description,
        "runs": runs,
        "subscribes": list(manifest.subscribes),
        "keywords": list(manifest.keywords),
        "schedules": [{"name": schedule.name, "cron": schedule.cron} for schedule in manifest.schedules],
    }
