"""A dictionary is the measure; what it costs to grow is counted in hashes."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kingdom.mq import large_map
from kingdom.mq.large_map import ENTRIES_OF_A_PART, LargeMap

STEPS = st.lists(st.tuples(st.sampled_from(["set", "pop", "any"]), st.integers(0, 60)), max_size=300)


class Hashed(int):
    """A key that counts how often it is hashed."""

    times = 0

    def __hash__(self) -> int:
        Hashed.times += 1
        return int.__hash__(self)


@settings(deadline=None)
@given(st.dictionaries(st.integers(0, 60), st.integers()), STEPS)
def test_it_is_a_dictionary(start: dict[int, int], steps: list[tuple[str, int]]) -> None:
    before, large_map.ENTRIES_OF_A_PART = large_map.ENTRIES_OF_A_PART, 3
    try:
        measure, large = dict(start), LargeMap(start.items())
        for number, (step, key) in enumerate(steps):
            if step == "set":
                measure[key] = number
                large.put(key, number)
            elif step == "pop":
                assert large.pop(key, None) == measure.pop(key, None)
            elif step == "any" and measure:
                key, value = large.popitem()
                assert measure.pop(key) == value
            assert (len(large), large.get(key), key in large) == (len(measure), measure.get(key), key in measure)
        assert dict(large.items()) == measure
        assert sorted(large.values()) == sorted(measure.values())
        large.clear()
        assert (len(large), [*large.values()], large.get(0)) == (0, [], None)
    finally:
        large_map.ENTRIES_OF_A_PART = before


def test_it_grows_and_shrinks_a_little_at_a_time() -> None:
    large = LargeMap[Hashed, int]()
    most = 0
    for number in range(40 * ENTRIES_OF_A_PART):
        before = Hashed.times
        large.put(Hashed(number), number)
        most = max(most, Hashed.times - before)
    assert ENTRIES_OF_A_PART < most < 10 * ENTRIES_OF_A_PART  # a dictionary that grows hashes nothing, but copies all
    assert max(map(len, large.parts())) < 4 * ENTRIES_OF_A_PART


def test_its_parts_hold_all_that_stays_whatever_comes_and_goes_meanwhile() -> None:
    large = LargeMap((number, number) for number in range(10 * ENTRIES_OF_A_PART))
    seen: set[int] = set()
    for number, part in enumerate(large.parts()):
        seen.update(part)
        for new in range(ENTRIES_OF_A_PART if number < 15 else 0):
            large.put((number + 11) * ENTRIES_OF_A_PART + new, -1)
        large.pop(number, None)
    assert seen >= set(range(100, 10 * ENTRIES_OF_A_PART))
