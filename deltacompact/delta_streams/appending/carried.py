"""Checks that deltas which are carried over to a successor fit the successor's rows.

restate      rows with id string          meanwhile  append  id int64       refused: restate again
roll back    to rows with at[us] 9999     meanwhile  append  at[ns]         refused: roll back again
compact      nothing to check: an append fits all that is folded
"""

from __future__ import annotations

from collections.abc import Sequence

from deltacompact.base.errors import SchemaError
from deltacompact.base.model import Commit
from deltacompact.delta_streams.appending.far import Measure
from deltacompact.delta_streams.appending.shape import StreamShape
from deltacompact.delta_streams.log.state import StreamState


def check_carried(
    below: StreamShape, state: StreamState, late: Sequence[Commit], measure: Measure, meanwhile: str
) -> None:
    """Raise SchemaError if a delta of `late` does not fit the rows of `below`. `state`: of the version with the
    deltas."""
    deltas = [delta for commit in late for delta in commit.deltas if delta.position not in state.retracted]
    try:
        below.with_files([(delta.operation, delta.files) for delta in deltas], measure)
    except SchemaError as error:
        raise SchemaError(f"{error}; it was appended while the partition was {meanwhile}") from error
