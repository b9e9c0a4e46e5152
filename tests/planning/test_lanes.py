"""What is too small for a cluster: few rows and few bytes, both."""

from __future__ import annotations

import pytest

from deltacompact import Settings
from deltacompact.planning.lanes import stays_here


@pytest.mark.parametrize(
    ("executor", "rows", "data_bytes", "expected"),
    [
        ("auto", 10, 100, True),
        ("auto", 11, 100, False),
        ("auto", 10, 101, False),
        ("local", 11, 101, True),
        ("ray", 10, 100, False),
    ],
)
def test_an_input_stays_here_if_it_is_small_in_rows_and_in_bytes(executor, rows, data_bytes, expected):
    settings = Settings(executor=executor, local_rows_max=10, local_bytes_max=100)
    assert stays_here(settings, rows, data_bytes) is expected
