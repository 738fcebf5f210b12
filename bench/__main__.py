"""`python -m bench [--quick] [NAME…]`: run the scripts of the table and write down what they found.

A full run writes results.json and docs/benchmarks.md with its plots; with names it replaces only their figures.
A quick run is for development: it prints, and writes nothing.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
import traceback
from importlib import import_module
from pathlib import Path
from typing import Any

from bench import report

SCRIPTS = {
    "court": "bench.court:run",
    "footprint": "bench.footprint:run",
    "recovery": "bench.recovery:run",
    "mq_stores": "bench.mq_stores:run",
    "mq_growth": "bench.mq_growth:run",
    "mq_mailbox": "bench.mq_mailbox:run",
    "mq_peers": "bench.mq_peers:run",
}
HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results.json"
BUSY = (
    "The machine was busy with other work while this was measured: ratios hold, since floors met the same; "
    "goals in milliseconds do not tell much."
)


def main(words: list[str]) -> int:
    quick = "--quick" in words
    names = [word for word in words if word != "--quick"]
    if unknown := [name for name in names if name not in SCRIPTS]:
        print(f"bench: no script called {', '.join(unknown)}; known are {', '.join(SCRIPTS)}", file=sys.stderr)
        return 2
    found: dict[str, Any] = {}
    for name in names or SCRIPTS:
        found[name] = measured(name, quick)
        print(report.text(found[name]), flush=True)
    if not quick:
        kept = json.loads(RESULTS.read_text())["scripts"] if RESULTS.exists() else {}
        merged = {name: {**kept, **found}[name] for name in SCRIPTS if name in {**kept, **found}}
        RESULTS.write_text(json.dumps({"scripts": merged}, indent=1, ensure_ascii=False) + "\n")
        report.write(HERE.parent / "docs", merged)
    return 1 if any("trouble" in each for each in found.values()) else 0


def measured(name: str, quick: bool) -> dict[str, Any]:
    module, _, attribute = SCRIPTS[name].partition(":")
    about = {"measured_at": time.strftime("%Y-%m-%d %H:%M", time.gmtime()), "quick": quick, "machine": machine()}
    begun = time.monotonic()
    try:
        figures = getattr(import_module(module), attribute)(quick)
    except Exception as trouble:  # noqa: BLE001
        # The edge of the run: one script that fails must not cost the figures of the others.
        traceback.print_exc()
        return {**about, "title": name, "rows": [], "curves": [], "trouble": f"{type(trouble).__name__}: {trouble}"}
    busy = about["machine"]["load_before"] > (os.cpu_count() or 1)
    notes = [*figures.get("notes", ()), *([BUSY] if busy else [])]
    return {**about, "seconds": round(time.monotonic() - begun, 1), **figures, "notes": notes}


def machine() -> dict[str, Any]:
    model = next((line for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line), ": ?")
    return {
        "processor": model.partition(":")[2].strip(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 2),
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
