"""A time means one moment, or it is refused."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from deltacompact.base.errors import InputError
from deltacompact.base.moments import moment_of


@pytest.mark.parametrize("text", ["2026-11-22", "2026-11-22 00:00", "2026-11-22T02:00+02:00", "2026-11-22t00:00:00Z"])
def test_a_time_has_a_space_or_a_t_and_is_of_utc_without_a_zone(text):
    assert moment_of(text) == datetime(2026, 11, 22, tzinfo=UTC)


@pytest.mark.parametrize(
    "text", ["2026-11-22+02:00", "2026-11-22_02:00", "2026-11-22Z", "2026-11-22 25:00", "2026-13-01"]
)
def test_a_date_with_a_zone_and_what_no_calendar_has_are_refused(text):
    """2026-11-22+02:00 was taken for two o'clock of UTC."""
    with pytest.raises(InputError, match="is no time: write it like"):
        moment_of(text)


@pytest.mark.parametrize("text", ["3", "1-50a3", "77574975692", "26-11-22"])
def test_the_name_of_a_version_is_no_time(text):
    assert moment_of(text) is None
