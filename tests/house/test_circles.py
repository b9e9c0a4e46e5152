"""No files import each other in a circle, also not for annotations alone: import-linter leaves those out."""

from __future__ import annotations

import graphlib

import grimp


def test_no_files_import_each_other_in_a_circle():
    graph = grimp.build_graph("deltacompact", "sessions", cache_dir=None)
    graph.remove_module("deltacompact")  # the kernels are imported from it, and it names everything for annotations
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    graphlib.TopologicalSorter(imports).prepare()  # raises CycleError, which names the circle
