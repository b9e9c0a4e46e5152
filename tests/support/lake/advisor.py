"""The advisor: damages objects that only save time. It removes heads, checkpoints, listings and marks, puts old copies
in their place, or nonsense.

    t/stream/hint.json     an hour old          stale: from a backup, or from a slow writer
    t/listing.json         cut in the middle    damaged
    t/vacuum.json          of another stream    somebody copied a folder
    t/vacuum.json          first_s: never       wrong, with the right checksum: garbage stays, nothing else

Whatever the advisor does, readers must read the same rows as before.
"""

from __future__ import annotations

import json
from dataclasses import replace

from deltacompact.delta_streams.paths import StreamPaths
from deltacompact.maintenance.vacuum import mark as vacuum_mark
from deltacompact.maintenance.vacuum.mark import SealedVersion, digest

from .world import World

_ADVICE = ("/stream/hint.json", "/listing.json", "/vacuum.json")
HOWS = ("missing", "stale", "damaged", "of another", "changed", "lying")


class Advisor:
    def __init__(self, world: World) -> None:
        self.world = world
        self._copies: dict[str, list[bytes]] = {}

    def spoil(self, how: str, choice: int, cut: int) -> None:
        """Damage one object, if there is one. Keep a copy of every object, to put it back later."""
        there = {path: self.world.inner.get(path) for path in sorted(self.world.inner._objects) if _is_advice(path)}
        for path, data in there.items():
            self._copies.setdefault(path, []).append(data)
        if not self._copies:
            return
        path = sorted(self._copies)[choice % len(self._copies)]
        if (data := self._spoilt(how, path, cut)) is None:
            self.world.inner.delete([path])
        else:
            self.world.inner.put(path, data)
        self.world.seen[f"{how} {path.rsplit('/', 1)[-1]}"] += 1
        self.world.catalog = self.world.fresh()

    def _spoilt(self, how: str, path: str, cut: int) -> bytes | None:
        data = self._copies[path][-1]
        match how:
            case "stale":
                return self._copies[path][cut % len(self._copies[path])]
            case "damaged":
                return data[: cut * 7 % (len(data) + 1)]
            case "of another" if "/checkpoints/" not in path:
                name = path.rsplit("/", 1)[-1]
                others = [other for other in sorted(self._copies) if other.endswith(f"/{name}")]
                return self._copies[others[cut % len(others)]][-1]
            case "changed":
                return _changed(data, cut)
            case "lying" if path.endswith("/vacuum.json"):
                return self._lying_mark(path, data, cut)
            case _:
                return None

    def _lying_mark(self, path: str, data: bytes, cut: int) -> bytes | None:
        """A mark that says that there is nothing to do, or knows the wrong versions. Its checksum is right."""
        root = path.removesuffix("/vacuum.json")
        mark = vacuum_mark.parsed(root, data, self.world.now_s)
        if mark is None:
            return None
        below = self.world.inner.list(f"{root}/")
        listed = [stat for stat in below if stat.path.startswith(StreamPaths(root).folders)]
        lies = [
            replace(mark, first_s=None, objects=digest(listed)),
            replace(mark, chain={}, first_s=0.0),
            replace(mark, chain={**mark.chain, f"9-{'5c' * 16}": SealedVersion(0)}, first_s=0.0),
            replace(mark, chain=dict(list(mark.chain.items())[:1]), first_s=0.0, records=("nowhere",)),
            replace(mark, full_s=self.world.now_s + 1e6),
        ]
        self.world.lied = True
        return lies[cut % len(lies)].encoded(root)


def _is_advice(path: str) -> bool:
    return path.endswith(_ADVICE) or "/checkpoints/" in path


def _changed(data: bytes, cut: int) -> bytes:
    """The document with one value replaced."""
    try:
        document = json.loads(data)
    except ValueError:
        return b"{}"
    if not isinstance(document, dict) or not document:
        return b"[]"
    name = sorted(document)[cut % len(document)]
    document[name] = [None, 7, "0", {}, []][cut % 5]
    return json.dumps(document).encode()
