"""Who restarts whom, without a process: every observation has one state, every state one action."""

import pytest

from kingdom.court.steward.diagnosis import ACTIONS, AwakeClock, Observation, State, Unchanged, diagnose, patience

OBSERVATIONS: list[tuple[Observation, State]] = [
    (Observation(runs=True), State.WELL),
    (Observation(runs=True, unchanged=119.9), State.WELL),
    (Observation(runs=True, unchanged=120.0), State.HUNG),
    (Observation(runs=True, has_beaten=False, unchanged=119.0), State.WELL),
    (Observation(runs=True, has_beaten=False, unchanged=120.0), State.HUNG),
    (Observation(runs=True, waits=True, unchanged=290.0), State.WAITING),
    (Observation(runs=False, elsewhere=True), State.WELL),
    (Observation(runs=False, elsewhere=True, code=75, unchanged=30.0), State.WELL),
    (Observation(runs=False, elsewhere=True, unchanged=121.0), State.HUNG),
    (Observation(code=1), State.DEAD),
    (Observation(code=-9), State.DEAD),
    (Observation(code=1, unchanged=10.0), State.FORGOTTEN),
    (Observation(code=127, unchanged=10.0), State.FORGOTTEN),
    (Observation(code=0), State.WELL),
    (Observation(code=0, unchanged=1.9), State.WELL),
    (Observation(code=0, unchanged=2.0), State.ENDED),
    (Observation(code=0, unchanged=2.0, launching=True), State.WELL),
    (Observation(code=0, unchanged=9.9, ended_before=1), State.WELL),
    (Observation(code=0, unchanged=10.0, ended_before=1), State.ENDED),
    (Observation(code=0, stopped=True, unchanged=999.0), State.STOPPED),
    (Observation(code=75), State.WELL),
    (Observation(code=75, unchanged=10.0), State.DISPLACED),
    (Observation(code=78, unchanged=999.0), State.REFUSED),
    (Observation(code=78, is_mended=True), State.MENDED),
    (Observation(code=78, is_mended=True, stopped=True), State.STOPPED),
    (Observation(code=78, is_mended=True, runs=True), State.WELL),
    (Observation(), State.WELL),
    (Observation(unchanged=10.0), State.ABSENT),
    (Observation(wanted="down"), State.UNWANTED),
    (Observation(wanted="down", code=1, unchanged=999.0), State.UNWANTED),
    (Observation(wanted="down", runs=True), State.LINGERING),
    (Observation(wanted="down", runs=True, launching=True), State.UNWANTED),
    (Observation(wanted="quarantined", code=78), State.QUARANTINED),
    (Observation(wanted="quarantined", unchanged=999.0), State.QUARANTINED),
]


@pytest.mark.parametrize(("seen", "state"), OBSERVATIONS, ids=str)
def test_an_observation_has_one_state(seen: Observation, state: State) -> None:
    assert diagnose(seen, threshold=120.0, settling=10.0) is state


def test_a_role_that_is_being_loaded_is_not_hung() -> None:
    loading = Observation(runs=True, has_beaten=False, unchanged=5.0)
    assert diagnose(loading, threshold=2.0, settling=1.0) is State.WELL
    assert diagnose(Observation(runs=True, unchanged=5.0), threshold=2.0, settling=1.0) is State.HUNG


def test_a_role_that_ends_again_and_again_is_started_ever_later() -> None:
    waits = [patience(settling=10.0, ended_before=times) for times in range(8)]
    assert waits == [2.0, 10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0]
    assert patience(settling=0.2, ended_before=0) == 0.2


def test_every_state_of_a_role_can_be_seen() -> None:
    assert {state for _, state in OBSERVATIONS} == set(State) - {State.LAUNCHER_DEAD, State.LAUNCHER_HUNG}


def test_every_state_has_an_action() -> None:
    assert set(ACTIONS) == set(State)


def test_a_long_gap_between_two_looks_is_a_short_one() -> None:
    times = iter([0.0, 5.0, 3605.0, 3600.0, 3605.0])
    watch = AwakeClock(lambda: next(times))
    assert [watch.look(longest_gap=15.0) for _ in range(4)] == [5.0, 20.0, 20.0, 25.0]


def test_what_stays_as_it_is_grows_old() -> None:
    unchanged = Unchanged()
    looks = [("king", "a", 1.0), ("king", "a", 3.0), ("envoy", "a", 3.0), ("king", "b", 9.0), ("king", "b", 9.5)]
    assert [unchanged.since(*look) for look in looks] == [0.0, 2.0, 0.0, 0.0, 0.5]
