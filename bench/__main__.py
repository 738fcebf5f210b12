"""`python -m bench [--quick [--keep]] [PART…]`: measure the parts of the table and write down what was found.

A full run writes bench/results.json and docs/benchmarks.md with its plots; with names it replaces only their figures.
`python -m bench --write` writes the page again from results.json. A quick run has fewer rounds and smaller numbers:
it prints, and writes nothing unless `--keep` is given too; the page then says so beside each of its parts.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from bench import floors, report

PARTS = {
    "court": "bench.court:run",
    "jobs": "bench.jobs:run",
    "footprint": "bench.footprint:run",
    "roles": "bench.footprint:roles",
    "recovery": "bench.recovery:run",
    "mq_stores": "bench.mq_stores:run",
    "mq_growth": "bench.mq_growth:run",
    "mq_mass": "bench.mq_mass:run",
    "mq_mailbox": "bench.mq_mailbox:run",
    "mq_libraries": "bench.mq_libraries:run",
    "mq_brokers": "bench.mq_brokers:run",
    "mime": "bench.mime:run",
    "council": "bench.council:run",
    "chat": "bench.chat:run",
    "chat_distributed": "bench.chat:run_distributed",
    "page": "bench.page:run",
}
OPTIONS = ("--quick", "--keep", "--write")
HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results.json"
BUSY = (
    "The machine was busy with other work while this was measured: ratios hold, since floors met the same; "
    "goals in milliseconds do not tell much."
)


def main(words: list[str]) -> int:
    quick = "--quick" in words
    names = [word for word in words if word not in OPTIONS]
    if unknown := [name for name in names if name not in PARTS]:
        known = ", ".join([*PARTS, *OPTIONS])
        print(f"bench: no part or option {', '.join(unknown)}; known are {known}", file=sys.stderr)
        return 2
    found: dict[str, Any] = {}
    if "--write" not in words:
        at_best = floors.machine()
        for name in names or PARTS:
            found[name] = measured(name, quick, at_best)
            print(report.text(found[name]), flush=True)
    if not quick or "--keep" in words:
        write(found)
    return 1 if any("error" in part for part in found.values()) else 0


def earlier() -> dict[str, Any]:
    """Return the parts that earlier runs have left."""
    parts: dict[str, Any] = json.loads(RESULTS.read_text()).get("parts", {}) if RESULTS.exists() else {}
    return parts


def write(found: dict[str, Any]) -> None:
    """Write these parts, and those of earlier runs, to results.json and the page."""
    merged = {**earlier(), **found}
    merged = {name: merged[name] for name in PARTS if name in merged}
    RESULTS.write_text(json.dumps({"parts": merged}, indent=1, ensure_ascii=False) + "\n")
    report.write(HERE.parent / "docs", merged)


def keep(name: str, figures: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Write one part anew, made from what earlier runs have left of it."""
    write({name: {**surroundings(floors.machine()), **figures(earlier().get(name, {}))}})


def surroundings(at_best: dict[str, float]) -> dict[str, Any]:
    """Return when, where and of which code figures are taken."""
    return {
        "measured_at": time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
        "commit": commit(),
        "machine": {**machine(), "at_best": at_best},
    }


def measured(name: str, quick: bool, at_best: dict[str, float]) -> dict[str, Any]:
    module, _, attribute = PARTS[name].partition(":")
    about = {**surroundings(at_best), "quick": quick}
    began = time.monotonic()
    try:
        figures = getattr(import_module(module), attribute)(quick)
    except Exception as error:  # noqa: BLE001
        # The edge of the run: one part that fails must not cost the figures of the others.
        traceback.print_exc()
        return {**about, "title": name, "error": f"{type(error).__name__}: {error}"}
    busy = about["machine"]["load_before"] > (os.cpu_count() or 1)
    notes = [*figures.get("notes", ()), *([BUSY] if busy else [])]
    return {**about, "seconds": round(time.monotonic() - began, 1), **figures, "notes": notes}


def machine() -> dict[str, Any]:
    model = next((line for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line), ": ?")
    return {
        "processor": model.partition(":")[2].strip(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def commit() -> str:
    try:
        command = ["git", "-C", str(HERE), "rev-parse", "--short", "HEAD"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
