"""What cannot be read is kept with its reason, within bounds."""

from __future__ import annotations

import os
from pathlib import Path

from tests.mq.mailbox.boxes import ByHand

DAY = 86_400.0


def box_with(home: Path, **bounds: float) -> ByHand:
    return ByHand(home, backend="memory", ipc={"deadKeep": bounds})


def bury(box: ByHand, *names: str, size: int = 4) -> None:
    for name in names:
        box.lay(name, b"x" * size)
        box.turn()
        box.now += 1


def test_the_oldest_go_when_there_are_too_many(home: Path) -> None:
    box = box_with(home, files=2)
    bury(box, "a.json", "b.json", "c.json")
    assert box.names(box.box.dead) == ["b.json", "b.json.reason", "c.json", "c.json.reason"]
    assert box.data("metrics")["dead"] == {"files": 2, "bytes": 8, "removed": 1}
    assert any("removed 1 old" in said for said in box.said)
    box.engine.close()


def test_the_oldest_go_when_they_are_too_large_together(home: Path) -> None:
    box = box_with(home, mib=0.01)
    bury(box, "a.json", "b.json", size=6_000)
    assert box.names(box.box.dead) == ["b.json", "b.json.reason"]
    bury(box, "c.json", size=20_000)
    assert box.names(box.box.dead) == ["c.json", "c.json.reason"]  # there is one to look at, however large
    box.engine.close()


def test_a_file_with_holes_drives_nothing_out(home: Path) -> None:
    box = box_with(home, mib=0.1)
    bury(box, "a.json")
    with box.lay("holes.json", b"x").open("r+b") as file:
        file.truncate(100 << 20)
    box.turn()
    assert {"a.json", "holes.json"} <= {*box.names(box.box.dead)}
    box.engine.close()


def test_a_folder_goes_with_what_is_in_it(home: Path) -> None:
    box = box_with(home, files=1)
    (box.box.requests / "folder.json" / "inner").mkdir(parents=True)
    box.turn()
    bury(box, "a.json")
    assert box.names(box.box.dead) == ["a.json", "a.json.reason"]
    box.engine.close()


def test_they_go_when_they_are_too_old_also_after_a_restart(home: Path) -> None:
    box = box_with(home, days=1)
    bury(box, "a.json")
    os.utime(box.box.dead / "a.json", (box.now, box.now))
    box.reopen()
    bury(box, "b.json")
    assert box.data("metrics")["dead"]["files"] == 2
    box.now += DAY
    box.turn()
    assert box.names(box.box.dead) == []
    box.engine.close()


def test_a_restart_counts_what_is_there(home: Path) -> None:
    box = box_with(home, files=3)
    bury(box, "a.json", "b.json", "c.json")
    box.reopen()
    bury(box, "d.json")
    assert box.data("metrics")["dead"]["files"] == 3
    box.engine.close()


def test_rubbish_does_not_fill_the_log(home: Path) -> None:
    box = box_with(home, files=10)
    bury(box, *(f"{number}.json" for number in range(50)))
    box.now += 120
    bury(box, "again.json")
    assert len(box.names(box.box.dead)) == 20
    assert len(box.said) < 50
    assert sum(int(said.split()[1]) for said in box.said if said.startswith("removed")) == 41
    box.engine.close()
