"""Defects drawn by cosmic-ray: `make faults MUTANTS=random [COUNT=100 SEED=1 ROOM=court/king]`.

Files are drawn by their size, and one defect in each. It is planted in a copy of the checkout, so the processes that
tests start have it too; its tests run from the nearest to the farthest until one fails.
"""

from __future__ import annotations

import json
import os
import random
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from tests.faults import mutants, trees

SECONDS = 3600
IN_TYPES = "core/ReplaceBinaryOperator_BitOr_%"
"""`|` is mostly part of an annotation, which nobody evaluates."""
FAR = ["tests/contracts", "tests/journey", "tests/faults"]
SAID = "select test_outcome, output, diff from work_results"


def stages(file: str) -> list[list[str]]:
    """Return the tests for a file of the program: of its folder, of those above it, and those that cross products."""
    folder = Path("tests", *Path(file).parts[1:-1])
    above = [path for path in (folder, *folder.parents) if len(path.parts) > 1 and any(path.glob("test_*.py"))]
    return [*([str(path)] for path in above), [*map(str, sorted(Path("tests").glob("test_*.py"))), *FAR]]


def run_tests() -> int:
    """Run the tests for the file that differs in this copy. 0 if none of them fails."""
    changed = subprocess.run(["git", "diff", "--name-only"], capture_output=True, text=True, check=True).stdout.split()
    pytest = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    return next((code for stage in stages(changed[0]) if (code := subprocess.call([*pytest, *stage]))), 0)


def drawn_files(room: str, count: int, dice: random.Random) -> list[str]:
    """Return files below a folder of the program, each as likely as it is long; one may come twice."""
    files = sorted(Path("kingdom", room).rglob("*.py"))
    return [str(file) for file in dice.choices(files, [file.stat().st_size for file in files], k=count)]


def plant(room: str, count: int, seed: int) -> list[tuple[str, str, str]]:
    """Plant drawn defects in the folder that this process is in. Return the ends, what was printed, and the changes."""
    dice = random.Random(seed)
    files = drawn_files(room, count, dice)
    Path("drawn.toml").write_text(
        f"[cosmic-ray]\nmodule-path = {json.dumps(sorted(set(files)))}\ntimeout = {SECONDS}.0\nexcluded-modules = []\n"
        f'test-command = "{sys.executable} -m tests.faults.drawn tests"\ndistributor.name = "local"\n'
    )
    cosmic_ray = [str(Path(sys.executable).with_name("cosmic-ray"))]
    subprocess.run([*cosmic_ray, "init", "drawn.toml", "drawn.sqlite"], check=True)
    with closing(sqlite3.connect("drawn.sqlite")) as found, found:
        of_file = "select job_id from mutation_specs where module_path = ? and operator_name not like ? order by rowid"
        jobs = [found.execute(of_file, (file, IN_TYPES)).fetchall() for file in files]
        kept = json.dumps([dice.choice(some)[0] for some in jobs if some])
        for table in ("mutation_specs", "work_items"):
            found.execute(f"delete from {table} where job_id not in (select value from json_each(?))", (kept,))
    subprocess.run([*cosmic_ray, "exec", "drawn.toml", "drawn.sqlite"], check=True)
    with closing(sqlite3.connect("drawn.sqlite")) as found, found:
        return found.execute(SAID).fetchall()


def main(room: str, count: int, seed: int) -> int:
    folder = mutants.pristine()
    identity = ["-c", "user.name=drawn", "-c", "user.email=drawn@localhost"]
    subprocess.run(["git", "add", "-A"], cwd=folder, check=True)
    subprocess.run(["git", *identity, "commit", "-qm", "as it is"], cwd=folder, check=True)
    os.chdir(folder)
    os.environ.update(trees.environment(folder, trees.new_folder()))
    ended = plant(room, count, seed)
    survivors = [diff for outcome, _, diff in ended if outcome == "SURVIVED"]
    caught_by = [said.strip().splitlines()[-3:] for outcome, said, _ in ended if outcome != "SURVIVED"]
    print(*survivors, *(" | ".join(lines) for lines in caught_by), sep="\n\n")
    print(f"drawn defects caught: {len(ended) - len(survivors)} of {len(ended)} (seed {seed})")
    return 0


if __name__ == "__main__":
    if "tests" in sys.argv[1:]:
        sys.exit(run_tests())
    sys.exit(main(os.environ.get("ROOM", ""), int(os.environ.get("COUNT", "20")), int(os.environ.get("SEED", "1"))))
