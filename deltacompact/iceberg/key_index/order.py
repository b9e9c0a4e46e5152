"""How rows become entries that can be compared with each other: digest, sequence number, sort columns, place.

has_sequence    digest 20 | sequence 8 | sort columns | file 4 | row 8
else            digest 20 | sort columns | file 4 | row 8
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from deltacompact.index.entries import Entries
from deltacompact.index.keys import DIGEST_BYTES, Encoding
from deltacompact.index.primary_key_index import reencoded

SEQUENCE_BYTES = 8
_BEHIND_SEQUENCE = DIGEST_BYTES + SEQUENCE_BYTES


@dataclass(frozen=True, slots=True)
class Order:
    """What makes one row newer than another. If it is equal, the later file and row is newer.

    has_sequence    sort keys begin with the sequence number
    encoding        key and sort columns
    """

    encoding: Encoding
    has_sequence: bool

    @property
    def sort_key_bytes(self) -> int:
        return self.encoding.sort_key_bytes + (SEQUENCE_BYTES if self.has_sequence else 0)

    @property
    def entry_bytes(self) -> int:
        return self.encoding.entry_bytes + (SEQUENCE_BYTES if self.has_sequence else 0)

    def widened(self, entries: Entries, before: Order) -> Entries:
        """Entries of an order that has the same columns, with sort keys as wide as ours."""
        if before.encoding.sort_columns == self.encoding.sort_columns:
            return entries
        if not self.has_sequence:
            return reencoded(entries, before.encoding, self.encoding)
        without = np.hstack([entries[:, :DIGEST_BYTES], entries[:, _BEHIND_SEQUENCE:]])
        wide = reencoded(np.ascontiguousarray(without), before.encoding, self.encoding)
        sequences = entries[:, DIGEST_BYTES:_BEHIND_SEQUENCE]
        return np.ascontiguousarray(np.hstack([wide[:, :DIGEST_BYTES], sequences, wide[:, DIGEST_BYTES:]]))


def sequences_of(entries: Entries) -> npt.NDArray[np.int64]:
    """The sequence numbers of entries that have some."""
    stored = np.ascontiguousarray(entries[:, DIGEST_BYTES:_BEHIND_SEQUENCE])
    return stored.view(">i8").reshape(-1).astype(np.int64)


def sequence_bytes(sequences: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    """Sequence numbers as the beginning of sort keys: (rows, 8). They are never negative where they are compared."""
    return sequences.astype(">i8").view(np.uint8).reshape(-1, SEQUENCE_BYTES)
