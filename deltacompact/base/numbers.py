"""Five kinds of numbers that are easily confused. Each has its own type.

delta file number   a file's index in its delta: the second sort criterion of the fold
ordinal             a file's index in a session's fold order, base files first; pointers carry it during a session
chain file number   names a compacted file permanently; pointers of a published index carry it
output number       an output's index among a session's outputs
rank                a live row's index among all rows that a session rewrites

delta at position 80, file 1   ->  ordinal 3  ->  rows of rank 7 … 11  ->  output 0  ->  chain file 17
"""

from __future__ import annotations

from typing import NewType

DeltaFileNumber = NewType("DeltaFileNumber", int)
Ordinal = NewType("Ordinal", int)
ChainFileNumber = NewType("ChainFileNumber", int)
OutputNumber = NewType("OutputNumber", int)
Rank = NewType("Rank", int)

UNNUMBERED = DeltaFileNumber(0)
"""The number of a file before a commit gives it one."""
