"""A release is one command: `make release VERSION=X` checks the tree, builds the wheel and tags it.

the versions of this tree        Cargo.toml, from which the wheel has its own, and the changelog agree
a copy with another version      refused before anything is built, naming the place
a tree that is not clean         refused
the extras of `make setup`       what `all` names, `test` and `bench`
a clean tree                     tagged once; the second time refused
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

import deltacompact
from deploy.release import PLACES, versions

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parent.parent.parent


def test_all_places_name_one_version():
    assert set(versions(ROOT).values()) == {deltacompact.__version__}


def test_the_makefile_names_each_extra_that_all_refers_to():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (everything,) = extras["all"]
    named = re.search(r"^EXTRAS := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert named
    assert set(named[1].split(",")) == {"test", "bench", *re.findall(r"[a-z]+(?=[,\]])", everything)}


@pytest.fixture
def tree(tmp_path):
    """A repository of the files that a release looks at, all committed."""
    for place in [*PLACES, "Makefile", "deploy/release.py"]:
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / place, tmp_path / place)
    (tmp_path / ".gitignore").write_text("__pycache__/\n")
    git(tmp_path, "init", "--quiet")
    commit(tmp_path)
    return tmp_path


def git(tree, *arguments):
    owner = ["-c", "user.name=test", "-c", "user.email=test@example.com"]
    return subprocess.run(
        ["git", "-C", tree, *owner, *arguments], check=True, capture_output=True, text=True
    ).stdout.split()


def commit(tree):
    git(tree, "add", "--all")
    git(tree, "commit", "--quiet", "--message", "a release")


def release(tree, version):
    """`make release` but for the wheel, which CI builds."""
    command = ["make", "--old-file=wheel", "release", *([f"VERSION={version}"] if version else [])]
    variables = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(tree)}
    variables |= {f"GIT_{who}_{what}": "t@example.com" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    return subprocess.run(command, cwd=tree, capture_output=True, text=True, env=variables)


def test_a_clean_tree_is_tagged_once(tree):
    version = versions(tree)["deltacompact/kernels/Cargo.toml"]
    assert release(tree, version).returncode == 0
    assert git(tree, "tag") == [f"v{version}"]
    again = release(tree, version)
    assert again.returncode != 0 and f"the tag v{version} exists" in again.stderr


@pytest.mark.parametrize("place", PLACES)
def test_a_place_that_names_another_version_is_refused(tree, place):
    version = versions(tree)[place]
    (tree / place).write_text((tree / place).read_text().replace(version, "9.9.9", 1))
    commit(tree)
    refused = release(tree, version)
    assert refused.returncode != 0 and f"{place} names version 9.9.9, not {version}" in refused.stderr
    assert git(tree, "tag") == []


@pytest.mark.parametrize(("version", "said"), [("", "say which"), ("0.0.1", "not 0.0.1")])
def test_a_version_is_named(tree, version, said):
    refused = release(tree, version)
    assert refused.returncode != 0 and said in refused.stderr


def test_what_is_not_committed_is_refused(tree):
    (tree / "new.txt").write_text("not committed")
    refused = release(tree, versions(tree)["deltacompact/kernels/Cargo.toml"])
    assert refused.returncode != 0 and "the tree is not clean: commit first" in refused.stderr
    assert git(tree, "tag") == []
