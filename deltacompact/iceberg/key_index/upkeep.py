"""Which files of key indexes `maintain` keeps: those that the two newest generations of a used index name.

    5c…/…07.json    put two days ago        stays, with its runs, and so does …06.json, which somebody may be reading
    5c…/run-9….arrow    in no generation    goes by age: a session lost a race, or was killed
    71…/…02.json    put 40 days ago         goes, with its runs: nobody has used this index for a month

A session that uses an index puts a generation at least once a day, even if no file is new. So the age of the newest
generation tells when the index was last used.
"""

from __future__ import annotations

from deltacompact.base.errors import DeltaCompactError
from deltacompact.iceberg.key_index.document import UnknownFormatError, names_in
from deltacompact.iceberg.key_index.terms import FOLDER
from deltacompact.storage.numbered import number_in
from deltacompact.storage.objects import ObjectStat, ObjectStore, by_folder

UNUSED_MS = 30 * 86_400_000
"""If no generation was put for so long, nobody uses the index."""
_GENERATIONS_KEPT = 2


def kept_files(store: ObjectStore, now_ms: int) -> frozenset[str]:
    """The paths of the index files that stay, whatever their age."""
    indexes = by_folder(store, FOLDER).items()
    return frozenset[str]().union(*(_kept(store, f"{FOLDER}{index}/", stats, now_ms) for index, stats in indexes))


def _kept(store: ObjectStore, folder: str, stats: list[ObjectStat], now_ms: int) -> set[str]:
    generations = [stat for stat in stats if number_in(folder, stat.path) is not None]
    newest = sorted(generations, key=lambda stat: stat.path)[-_GENERATIONS_KEPT:]
    if not newest or now_ms - newest[-1].modified_s * 1000 > UNUSED_MS:
        return set()
    kept = set()
    for stat in newest:
        try:
            kept |= {stat.path, *names_in(store.get(stat.path), folder, stat.path)}
        except UnknownFormatError:  # a newer version of deltacompact knows what these are
            return {stat.path for stat in stats}
        except DeltaCompactError:
            continue  # nobody can use it: it goes by age
    return kept
