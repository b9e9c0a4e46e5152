"""One compaction in a process of its own, so that its memory is measured and nobody else's: python … <lake> <codec>"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from deltacompact import DeltaStreamCatalog, Settings, compact
from deltacompact.storage.local import LocalStore


def main(lake: str, codec: str) -> None:
    catalog = DeltaStreamCatalog(LocalStore(Path(lake)))
    settings = Settings(executor="local", local_threads=1, compression=codec)
    (session,) = compact("t", delta_catalog_client=catalog, settings=settings).sessions
    assert session.error is None, session.error
    print(json.dumps([session.planned_peak_bytes, session.measured_peak_bytes, session.live]))


if __name__ == "__main__":
    main(*sys.argv[1:])
