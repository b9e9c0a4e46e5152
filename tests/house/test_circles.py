"""No files import each other in a circle, also not for annotations alone."""

from __future__ import annotations

import graphlib

import grimp

ROOT = "deltacompact"
"""The package itself: it names everything for annotations, and the kernels are imported from it."""


def test_no_files_import_each_other_in_a_circle():
    graph = grimp.build_graph(ROOT, "sessions", cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) - {ROOT} for module in graph.modules - {ROOT}}
    assert len(imports) > 500
    graphlib.TopologicalSorter(imports).prepare()  # raises CycleError, which names the circle
