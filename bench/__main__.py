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
import tomllib
import traceback
from importlib import import_module
from pathlib import Path
from typing import Any

from bench import floors, homes, report
from bench.figures import Found, Row

PARTS: dict[str, Any] = tomllib.loads((homes.HOUSE / "bench" / "table.toml").read_text())
OPTIONS = ("--quick", "--keep", "--write")
RESULTS = homes.HOUSE / "bench" / "results.json"
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
        at_best = floors.machine(homes.folder())
        for name in names or PARTS:
            found[name] = measured(name, quick, at_best)
            print(report.text(found[name]), flush=True)
    if not quick or "--keep" in words:
        write(found)
    return 1 if any("error" in part for part in found.values()) else 0


def write(found: dict[str, Any]) -> None:
    """Write these parts, and those of earlier runs, to results.json and the page."""
    earlier = json.loads(RESULTS.read_text())["parts"] if RESULTS.exists() else {}
    merged = {name: {**earlier, **found}[name] for name in PARTS if name in earlier or name in found}
    RESULTS.write_text(json.dumps({"parts": merged}, indent=1, ensure_ascii=False) + "\n")
    report.write(homes.HOUSE / "docs", merged)


def measured(name: str, quick: bool, at_best: dict[str, float]) -> dict[str, Any]:
    part, began = PARTS[name], time.monotonic()
    module, _, attribute = part["run"].partition(":")
    about = {
        "title": part["title"],
        "about": part["about"],
        "measured_at": time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
        "commit": commit(),
        "machine": {**machine(), "at_best": at_best},
        "quick": quick,
    }
    try:
        found: Found = getattr(import_module(module), attribute)(quick)
        rows = list(found.lines([Row(*row) for row in part["rows"]]))
    except Exception as error:  # noqa: BLE001
        # The edge of the run: one part that fails must not cost the figures of the others.
        traceback.print_exc()
        return {**about, "error": f"{type(error).__name__}: {error}"}
    busy = about["machine"]["load_before"] > (os.cpu_count() or 1)
    figures = {"rows": rows, "tables": found.tables, "curves": found.curves}
    notes = [*part.get("notes", ()), *found.notes, *([BUSY] if busy else [])]
    return {**about, **figures, "notes": notes, "seconds": round(time.monotonic() - began, 1)}


def machine() -> dict[str, Any]:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if "model name" in line), "?")
    load = round(os.getloadavg()[0], 2)
    about = {"kernel": platform.release(), "python": platform.python_version(), "load_before": load}
    return {"processor": model, "cores": os.cpu_count(), **about}


def commit() -> str:
    try:
        command = ["git", "-C", str(homes.HOUSE), "rev-parse", "--short", "HEAD"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
