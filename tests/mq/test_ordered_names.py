"""A sorted list is the measure; what it costs is counted in comparisons."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kingdom.mq import ordered_names
from kingdom.mq.ordered_names import LONGEST_PART, OrderedNames

STEPS = st.lists(st.tuples(st.sampled_from(["add", "remove", "first", "last"]), st.integers(0, 300)), max_size=200)


class Compared(str):
    """A name that counts how often it is compared."""

    __slots__ = ()
    times = 0

    def __lt__(self, other: str) -> bool:
        Compared.times += 1
        return str.__lt__(self, other)


@settings(deadline=None)
@given(st.sets(st.integers(0, 300)), STEPS)
def test_it_is_a_sorted_list(start: set[int], steps: list[tuple[str, int]]) -> None:
    before = ordered_names.LONGEST_PART
    ordered_names.LONGEST_PART = 4
    try:
        names = OrderedNames(f"{number:03d}" for number in start)
        expected = sorted(f"{number:03d}" for number in start)
        for step, number in steps:
            name = f"{number:03d}"
            if step == "add" and name not in expected:
                names.add(name)
                expected = sorted([*expected, name])
            elif step == "remove":
                assert names.remove(name) is (name in expected)
                expected = [other for other in expected if other != name]
            elif step == "first" and expected:
                assert names.pop_first() == expected.pop(0)
            elif step == "last" and expected:
                assert names.pop_last() == expected.pop()
            assert (list(names), len(names), names.first()) == (expected, len(expected), (expected or [""])[0])
            assert names.after(name, 3) == [other for other in expected if other > name][:3]
    finally:
        ordered_names.LONGEST_PART = before


def test_a_change_costs_as_little_among_many_as_among_few() -> None:
    names = OrderedNames(Compared(f"{number:06d}") for number in range(100_000))
    Compared.times = 0
    assert names.remove(Compared("050000"))
    names.add(Compared("050000"))
    assert Compared.times < 60
    assert len(names) == 100_000
    assert max(map(len, names._parts)) <= LONGEST_PART
