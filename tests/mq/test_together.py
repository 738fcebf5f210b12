"""Threads that ask at the same time are served together, each once, and nobody waits for somebody who is gone."""

import threading
from collections.abc import Callable, Sequence

import pytest

from kingdom.mq.together import MOST_TOGETHER, Together
from tests.waiting import SOON, wait_until


class Slow:
    """Serves a group when the test says so."""

    def __init__(self) -> None:
        self.groups: list[list[int]] = []
        self.go = threading.Semaphore(0)
        self.error: Exception | None = None
        self.together = Together(self._ask)
        self.served: list[int] = []
        self.failed: list[int] = []
        self._threads: list[threading.Thread] = []

    def _ask(self, group: Sequence[int], end: float) -> None:
        self.groups.append(list(group))
        self.go.acquire()
        if self.error is not None:
            raise self.error

    def start(self, number: int, seconds: float = 30.0) -> None:
        def ask() -> None:
            try:
                if self.together.serve(number, seconds):
                    self.served.append(number)
            except ValueError:
                self.failed.append(number)

        self._threads.append(threading.Thread(target=ask))
        self._threads[-1].start()

    def finish(self) -> None:
        self.go.release(1000)
        for thread in self._threads:
            thread.join(SOON)
            assert not thread.is_alive()


def wait_for_waiting(slow: Slow, count: int) -> None:
    wait_until(lambda: len(slow.together._waiting) == count, SOON, "it happened")


def test_who_comes_while_one_asks_goes_with_the_next() -> None:
    slow = Slow()
    slow.start(0)
    wait_until(lambda: slow.groups == [[0]], SOON, "it happened")
    for number in range(1, 6):
        slow.start(number)
    wait_for_waiting(slow, 5)
    slow.finish()
    assert sorted(map(sorted, slow.groups)) == [[0], [1, 2, 3, 4, 5]]
    assert sorted(slow.served) == list(range(6))


def test_what_the_asking_met_is_told_to_all_of_the_group_and_to_no_other() -> None:
    slow = Slow()
    slow.start(0)
    wait_until(lambda: slow.groups == [[0]], SOON, "it happened")
    for number in (1, 2, 3):
        slow.start(number)
    wait_for_waiting(slow, 3)
    slow.go.release()
    wait_until(lambda: len(slow.groups) == 2, SOON, "it happened")
    slow.error = ValueError("no")
    slow.finish()
    assert (slow.served, sorted(slow.failed)) == ([0], [1, 2, 3])


def test_one_who_waits_too_long_goes_and_is_not_asked_for() -> None:
    slow = Slow()
    slow.start(0)
    wait_until(lambda: slow.groups == [[0]], SOON, "it happened")
    assert slow.together.serve(1, 0.01) is False
    slow.finish()
    assert slow.groups == [[0]]


def test_only_those_with_the_same_patience_go_together() -> None:
    """Else one would be held up by the time that another gives the manager."""
    slow = Slow()
    slow.start(0)
    wait_until(lambda: slow.groups == [[0]], SOON, "it happened")
    for number, seconds in ((1, 30.0), (2, 90.0), (3, 90.0)):
        slow.start(number, seconds)
        wait_for_waiting(slow, number)
    slow.finish()
    assert slow.groups == [[0], [1], [2, 3]]


def test_an_interrupted_one_leaves_the_way_free() -> None:
    def ask(group: Sequence[int], end: float) -> None:
        if group[0] == 0:
            raise KeyboardInterrupt

    together = Together(ask)
    with pytest.raises(KeyboardInterrupt):
        together.serve(0)
    assert together.serve(1, 5)


def test_many_threads_are_each_served_once() -> None:
    seen: list[int] = []
    largest = []

    def ask(group: Sequence[int], end: float) -> None:
        seen.extend(group)
        largest.append(len(group))

    together = Together(ask)

    def work(first: int) -> None:
        for number in range(first, first + 200):
            assert together.serve(number)

    threads = [threading.Thread(target=work, args=(200 * number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(seen) == list(range(1600))
    assert max(largest) <= MOST_TOGETHER


class Watch:
    """The time, which passes only while somebody waits for stragglers."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waited = 0.0
        self.meanwhile: list[Callable[[], object]] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += 0.0001
        self.waited += 0.0001
        if self.meanwhile:
            self.meanwhile.pop()()


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    watch = Watch()
    monkeypatch.setattr("kingdom.mq.together.time", watch)
    return watch


def test_who_was_just_served_goes_with_those_who_came_meanwhile(watch: Watch) -> None:
    """Else two halves would take turns for ever, each waiting for the other's sync."""
    slow = Slow()
    slow.start(0)
    wait_until(lambda: slow.groups == [[0]], SOON, "it happened")
    slow.start(1)
    wait_for_waiting(slow, 1)
    watch.now += 0.01
    watch.meanwhile.append(lambda: (slow.start(2), wait_for_waiting(slow, 1)))
    slow.finish()
    assert slow.groups == [[0], [1, 2]]


@pytest.mark.parametrize(("took", "longest"), [(0.01, 0.0007), (0.0008, 0.0004), (0.0, 0.0)])
def test_nobody_is_waited_for_longer_than_it_pays(watch: Watch, took: float, longest: float) -> None:
    slow = Slow()
    slow.start(0)
    wait_until(lambda: slow.groups == [[0]], SOON, "it happened")
    slow.start(1)
    wait_for_waiting(slow, 1)
    watch.now += took
    slow.finish()
    assert slow.groups == [[0], [1]]
    assert bool(took) == (watch.waited > 0)
    assert watch.waited <= longest
