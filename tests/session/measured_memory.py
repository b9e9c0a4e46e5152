"""Compacts a table and prints what was planned and measured of memory: python measured_memory.py FOLDER THREADS"""

from __future__ import annotations

import json
import sys

import deltacompact

if __name__ == "__main__":
    settings = deltacompact.Settings(executor="local", local_threads=int(sys.argv[2]))
    catalog = deltacompact.open_catalog(sys.argv[1])
    (session,) = deltacompact.compact("t", delta_catalog_client=catalog, settings=settings).sessions
    print(json.dumps([session.planned_peak_bytes, session.measured_peak_bytes]))
