"""A record of what was learned from ended sessions. An unreadable one counts as empty, and is learned again.

rates/local-local     {"pool": "local/local", "observations": […]}      read, learned from, swapped
rates/local-local     damaged, or of another format                     as if there were none
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from deltacompact.base.errors import CorruptionError, NotFoundError
from deltacompact.base.wording import one_line
from sessions.records.swapping import SwappedRecords

_LOG = logging.getLogger("sessions")
Learned = TypeVar("Learned")


class LearnedRecord(Generic[Learned]):
    """One such record. `nothing` stands for a record that is missing or unreadable."""

    def __init__(self, records: SwappedRecords, folder: str, kind: TypeAdapter[Learned], nothing: Learned) -> None:
        self._records = records
        self._folder = folder
        self._kind = kind
        self._nothing = nothing

    def read(self) -> Learned:
        try:
            return self._understood(self._records.read_to_update(self._folder).value)
        except NotFoundError:
            return self._nothing
        except CorruptionError as error:
            self._records.unreadable.note(self._folder, error)
            return self._nothing

    def update(self, learn: Callable[[Learned], Learned]) -> None:
        """Raises StoreError if the record cannot be replaced. Then only this lesson is lost."""

        def changed(found: Any) -> Any:
            known = self._nothing if found is None else self._understood(found)
            return self._kind.dump_python(learn(known), mode="json")

        try:
            self._records.update(self._folder, changed)
        except CorruptionError as error:
            self._records.unreadable.note(self._folder, error)
            self._records.remove_newest(self._folder)  # or nothing would ever be learned again
            self._records.update(self._folder, changed)

    def _understood(self, document: Any) -> Learned:
        try:
            return self._kind.validate_python(document)
        except ValidationError as error:
            _LOG.warning("%s cannot be understood and is begun anew: %s", self._folder, one_line(error))
            return self._nothing
