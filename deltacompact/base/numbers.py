"""Five numberings that are easily mistaken for each other, each a type of its own.

delta file number   a file's place in its delta: the second sort criterion of the fold
ordinal             a file's place in a session's fold order, base files first; pointers carry it during a session
chain file number   names a compacted file for ever; pointers of a published index carry it
output number       an output's place among a session's outputs
rank                a live row's place among all rows that a session rewrites

delta at position 80, file 1   ->  ordinal 3  ->  rows of rank 7 … 11  ->  output 0  ->  chain file 17
"""

from __future__ import annotations

from typing import NewType

DeltaFileNumber = NewType("DeltaFileNumber", int)
Ordinal = NewType("Ordinal", int)
ChainFileNumber = NewType("ChainFileNumber", int)
OutputNumber = NewType("OutputNumber", int)
Rank = NewType("Rank", int)
