"""Pages of the site that lie elsewhere in the repository. Links that fit the repository are made to fit the site."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.structure.files import File

PAGES = {
    "README.md": "tour.md",
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "benchmarks/README.md": "benchmarks.md",
}


def on_files(files, config):
    """Add the pages."""
    root = Path(config.config_file_path).parent
    for source, page in PAGES.items():
        files.append(
            File.generated(config, page, content=linked((root / source).read_text(), posixpath.dirname(source)))
        )
    return files


def on_page_markdown(markdown, page, **_):
    """Links of the pages in docs/; those that were added have theirs already."""
    return markdown if page.file.src_uri in PAGES.values() else linked(markdown, "docs")


def linked(text: str, folder: str) -> str:
    """The text of a file in this folder, with links as they are on the site: ../ARCHITECTURE.md -> architecture.md."""

    def fitted(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, link[1]))
        return f"]({PAGES.get(target, target.removeprefix('docs/'))}{link[2] or ''})"

    return re.sub(r"\]\(([^()#:]+\.(?:md|svg))(#[^()]*)?\)", fitted, text)
