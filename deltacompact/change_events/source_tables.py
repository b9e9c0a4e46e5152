"""One batch has messages of one source table: a topic with several tables would put all their rows into ours.

database  table   type               line 2 is refused: of d.other, where line 1 is of d.t
d         t       insert
d         other   delete
null      null    …                  says nothing of its table
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deltacompact.base import compute as pc
from deltacompact.base.errors import InputError
from deltacompact.change_events.events import Origin


class SourceTable:
    """The table that the messages of a batch are of, from the first message that says it."""

    def __init__(self) -> None:
        self._known: tuple[str, str] | None = None

    def check(self, fields: pa.Table, names: tuple[str, ...], which: npt.NDArray[np.bool_], origin: Origin) -> None:
        """Raise InputError naming the first message of another table. `names`: what names a table, itself last."""
        said = [name for name in names if name in fields.column_names and not pa.types.is_nested(fields[name].type)]
        if names[-1] not in said or pa.types.is_null(fields[names[-1]].type):
            return
        parts = [fields[name].cast(pa.string()) for name in said]
        # Arrow leaves a row out of the answer if all of its parts are null.
        tables = pc.binary_join_element_wise(*parts[:-1], parts[-1].fill_null(""), ".", null_handling="skip")
        tables = pc.if_else(pc.and_(pa.array(which), pc.is_valid(parts[-1])), tables, None)
        if self._known is None and tables.null_count < len(tables):
            first = int(np.argmax(np.asarray(tables.is_valid())))
            self._known = tables[first].as_py(), origin.row(first)
        if self._known is None:
            return
        known, where = self._known
        others = np.flatnonzero(np.asarray(pc.fill_null(pc.not_equal(tables, known), False)))
        if len(others):
            index = int(others[0])
            raise InputError(
                f"{origin.row(index)}: the message is of source table {tables[index].as_py()}, but {where} is of "
                f"{known}: append the messages of each source table apart (a file or topic for each)"
            )
