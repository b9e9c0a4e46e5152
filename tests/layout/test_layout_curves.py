"""Curves visit every cell once; Hilbert's goes from neighbour to neighbour."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from deltacompact.layout.curves import hilbert, zorder


@pytest.mark.parametrize(("columns", "bits"), [(1, 5), (2, 4), (3, 3), (4, 2)])
def test_a_curve_visits_every_cell_once(columns, bits):
    cells = np.array(list(itertools.product(range(1 << bits), repeat=columns)), np.uint64).T
    for curve in (hilbert, zorder):
        assert sorted(curve(cells, bits).tolist()) == list(range(1 << (bits * columns)))
    path = cells.T[np.argsort(hilbert(cells, bits))].astype(int)
    assert (np.abs(np.diff(path, axis=0)).sum(axis=1) == 1).all()


def test_z_order_takes_the_bits_in_turn():
    assert zorder(np.array([[0b10], [0b01]], np.uint64), 2).tolist() == [0b1001]
