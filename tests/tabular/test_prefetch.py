"""Values made in another thread: the same, in order, errors in their places, nothing left running."""

from __future__ import annotations

import threading
from collections.abc import Generator

import pytest

from deltacompact.tabular.prefetch import ahead


@pytest.mark.parametrize("count", [1, 2, 7])
@pytest.mark.parametrize("values", [0, 1, 2, 20])
def test_the_same_values_in_the_same_order(values: int, count: int) -> None:
    with ahead((value for value in range(values)), count) as taken:
        assert list(taken) == list(range(values))


def test_values_are_made_while_others_are_used() -> None:
    made = [threading.Event() for _ in range(4)]

    def making() -> Generator[int]:
        for place, each in enumerate(made):
            each.set()
            yield place

    with ahead(making(), 2) as taken:
        assert made[1].wait(10)  # before anything was asked for
        assert not made[2].wait(0.05)  # and no more than two
        assert next(taken) == 0
        assert made[2].wait(10)


def test_an_error_comes_in_the_place_of_its_value() -> None:
    def failing() -> Generator[int]:
        yield 1
        raise ValueError("the second")

    with ahead(failing(), 2) as taken:
        assert next(taken) == 1
        with pytest.raises(ValueError, match="the second"):
            next(taken)


def test_who_stops_early_leaves_nothing_running() -> None:
    closed = threading.Event()

    def endless() -> Generator[int]:
        try:
            while True:
                yield 0
        finally:
            closed.set()

    before = threading.active_count()
    with pytest.raises(KeyError), ahead(endless(), 2) as taken:
        next(taken)
        raise KeyError
    assert closed.is_set() and threading.active_count() == before
