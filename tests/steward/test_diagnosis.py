"""Who restarts whom, without a process: every sight has one state, every state one owner."""

import pytest

from kingdom.steward.diagnosis import DUTIES, Action, Owner, Sight, State, judge
from kingdom.steward.hearts import Stopwatch, Unchanged

SIGHTS: list[tuple[Sight, State]] = [
    (Sight(runs=True), State.WELL),
    (Sight(runs=True, unchanged=119.9), State.WELL),
    (Sight(runs=True, unchanged=120.0), State.HUNG),
    (Sight(runs=True, has_beaten=False, unchanged=119.0), State.WELL),
    (Sight(runs=True, has_beaten=False, unchanged=120.0), State.HUNG),
    (Sight(runs=True, waits=True, unchanged=290.0), State.WAITING),
    (Sight(runs=False, elsewhere=True), State.WELL),
    (Sight(runs=False, elsewhere=True, code=75, unchanged=30.0), State.WELL),
    (Sight(runs=False, elsewhere=True, unchanged=121.0), State.HUNG),
    (Sight(code=1), State.DEAD),
    (Sight(code=-9), State.DEAD),
    (Sight(code=1, unchanged=10.0), State.FORGOTTEN),
    (Sight(code=127, unchanged=10.0), State.FORGOTTEN),
    (Sight(code=0, unchanged=999.0), State.ENDED),
    (Sight(code=75), State.WELL),
    (Sight(code=75, unchanged=10.0), State.DISPLACED),
    (Sight(code=78, unchanged=999.0), State.REFUSED),
    (Sight(), State.WELL),
    (Sight(unchanged=10.0), State.ABSENT),
    (Sight(wanted="down"), State.UNWANTED),
    (Sight(wanted="down", code=1, unchanged=999.0), State.UNWANTED),
    (Sight(wanted="down", runs=True), State.LINGERING),
    (Sight(wanted="quarantined", code=78), State.QUARANTINED),
    (Sight(wanted="quarantined", unchanged=999.0), State.QUARANTINED),
]


@pytest.mark.parametrize(("sight", "state"), SIGHTS, ids=str)
def test_a_sight_has_one_state(sight: Sight, state: State) -> None:
    assert judge(sight, threshold=120.0, settling=10.0) is state


def test_a_role_that_is_being_loaded_is_not_hung() -> None:
    loading = Sight(runs=True, has_beaten=False, unchanged=5.0)
    assert judge(loading, threshold=2.0, settling=1.0) is State.WELL
    assert judge(Sight(runs=True, unchanged=5.0), threshold=2.0, settling=1.0) is State.HUNG


def test_every_state_of_a_role_can_be_seen() -> None:
    assert {state for _, state in SIGHTS} == set(State) - {State.LAUNCHER_DEAD, State.LAUNCHER_HUNG}


def test_every_state_has_a_cell_for_every_owner() -> None:
    assert set(DUTIES) == set(State)
    assert all(set(cells) == set(Owner) for cells in DUTIES.values())


def test_no_two_start_the_same_role() -> None:
    starts = {Action.RESTART, Action.START, Action.REPLACE, Action.RAISE}
    for state, cells in DUTIES.items():
        assert len([owner for owner in Owner if cells[owner] in starts]) <= 1, state


def test_a_long_gap_between_two_looks_is_a_short_one() -> None:
    times = iter([0.0, 5.0, 3605.0, 3600.0, 3605.0])
    watch = Stopwatch(lambda: next(times))
    assert [watch.look(longest_gap=15.0) for _ in range(4)] == [5.0, 20.0, 20.0, 25.0]


def test_what_stays_as_it_is_grows_old() -> None:
    unchanged = Unchanged()
    looks = [("king", "a", 1.0), ("king", "a", 3.0), ("envoy", "a", 3.0), ("king", "b", 9.0), ("king", "b", 9.5)]
    assert [unchanged.since(*look) for look in looks] == [0.0, 2.0, 0.0, 0.0, 0.5]
