"""Cancels rows that compactions only moved: the index says where they went, so no file is opened.

before    15: rows 0 1 2 3 live
index     15 was rewritten as 20: its rows 0 2 3 are rows 0 1 2; then 20 as 22, in another order: 2 0 1
after     22: rows 0 1 2 3 live                    left: removed 15: 1    added 22: 3, which came from a delta

Each row is followed through all relocations of the newer side, one after the other. A row that lives at both ends is
cancelled, because relocated rows were copied unchanged. If the index no longer tells where rows went, because its runs
were merged, they are compared by digest like all others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from deltacompact.base.data_file import DataFile
from deltacompact.base.numbers import ChainFileNumber
from deltacompact.change_feed.candidates import Bits
from deltacompact.index.live_bitmaps import live_mask
from deltacompact.index.remap import Relocator

FileName = tuple[str, int]
"""The path of a file, and a count that tells its occurrences apart: a file may have been appended twice."""
LiveFiles = dict[FileName, tuple[DataFile, Bits | None]]
"""Files with live rows. None: all of them live."""


def without_moved(
    older: LiveFiles,
    newer: LiveFiles,
    compacted: tuple[Sequence[DataFile], Sequence[DataFile]],
    relocator: Relocator,
) -> tuple[LiveFiles, LiveFiles]:
    """Both sides without the rows that live on both, in files that only one of them has.

    `compacted`: the compacted files of each side, which have numbers. `relocator` has the newer side's relocations.
    """
    older, newer = dict(older), dict(newer)
    names = {number: name for name, number in _numbered(compacted[1]).items()}
    left: dict[FileName, npt.NDArray[np.bool_]] = {}
    for name, number in _numbered(compacted[0]).items():
        if name not in older or name in newer or not relocator.knows(number):
            continue
        file, bits = older[name]
        lived = _lives(file, bits)
        rows = np.flatnonzero(lived)
        went = relocator.followed(number, rows)
        for output in set(went.files[went.lives].tolist()):
            target = names.get(output)
            if target is None or target not in newer or target in older:
                continue
            if target not in left:
                left[target] = _lives(*newer[target])
            own = np.flatnonzero(went.lives & (went.files == output))
            own = own[left[target][went.rows[own]]]
            left[target][went.rows[own]] = False
            lived[rows[own]] = False
        older[name] = file, _packed(lived)
    newer |= {target: (newer[target][0], _packed(lives)) for target, lives in left.items()}
    return _with_rows(older), _with_rows(newer)


def _numbered(files: Sequence[DataFile]) -> Mapping[FileName, ChainFileNumber]:
    """The numbers of files, without files that occur twice."""
    times = Counter(file.path for file in files)
    return {(file.path, 0): ChainFileNumber(file.number) for file in files if times[file.path] == 1}


def _lives(file: DataFile, bits: Bits | None) -> npt.NDArray[np.bool_]:
    return np.ones(file.rows, bool) if bits is None else live_mask(bits, file.rows).copy()


def _packed(lives: npt.NDArray[np.bool_]) -> Bits:
    return np.packbits(lives, bitorder="little")


def _with_rows(files: LiveFiles) -> LiveFiles:
    return {name: file for name, file in files.items() if file[1] is None or file[1].any()}
