"""Whether this tree may be released as VERSION: python deploy/release.py 0.2.0

    kernels/Cargo.toml    version = "0.2.0"      the wheel and __version__ have it from here
    CHANGELOG.md          ## 0.2.0               its first heading
    git                   nothing to commit, no tag v0.2.0

`make release VERSION=0.2.0` runs this first, then builds the wheel, then tags. Nothing is pushed.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

PLACES = {
    "deltacompact/kernels/Cargo.toml": r'^version = "(.+?)"$',
    "CHANGELOG.md": r"^## (\S+)$",
}
"""Where the version stands. The first match counts."""


def versions(root: Path) -> dict[str, str | None]:
    """The version that each place names; None where it names none."""
    found = {place: re.search(pattern, (root / place).read_text(), re.M) for place, pattern in PLACES.items()}
    return {place: match and match[1] for place, match in found.items()}


def obstacles(root: Path, version: str) -> Iterator[str]:
    """A line for each reason why this tree cannot be released as `version`."""
    for place, named in versions(root).items():
        if named != version:
            yield f"{place} names version {named}, not {version}: correct it"
    if _git(root, "status", "--porcelain"):
        yield "the tree is not clean: commit first"
    if _git(root, "tag", "--list", f"v{version}"):
        yield f"the tag v{version} exists: choose the next version"


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", root, *arguments], check=True, capture_output=True, text=True).stdout


def main(version: str) -> int:
    found = (
        list(obstacles(Path(__file__).parent.parent, version)) if version else ["say which: make release VERSION=0.2.0"]
    )
    for line in found:
        print(f"release: {line}", file=sys.stderr)
    return 2 if found else 0


if __name__ == "__main__":
    sys.exit(main("".join(sys.argv[1:])))
