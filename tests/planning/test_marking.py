"""Who reads a table decides whether a few dead rows are marked."""

from __future__ import annotations

import pytest

from deltacompact.base.model import Readers
from deltacompact.base.settings import Options
from deltacompact.planning.marking import MARKED_BELOW, marking


@pytest.mark.parametrize("readers", [None, *Readers])
@pytest.mark.parametrize("wanted", [0.0, 0.3, 1.0])
def test_who_compacts_decides_it(wanted: float, readers: Readers | None) -> None:
    options = Options(rewrite_dead_fraction=wanted)
    assert marking(options, readers) is options


@pytest.mark.parametrize(("readers", "share"), [(None, 0.0), (Readers.FILES, 0.0), (Readers.VECTORS, MARKED_BELOW)])
def test_else_the_readers_decide_it(readers: Readers | None, share: float) -> None:
    assert marking(Options(purge=True), readers) == Options(purge=True, rewrite_dead_fraction=share)


@pytest.mark.parametrize("readers", [None, Readers.FILES])
def test_for_plain_files_a_session_has_the_same_id_as_before(readers: Readers | None) -> None:
    assert marking(Options(), readers).output_options == Options(rewrite_dead_fraction=0.0).output_options
