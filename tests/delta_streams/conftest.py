import pytest

from deltacompact import cli


@pytest.fixture
def run(tmp_path, capfd):
    """Run one command on a catalog below tmp_path; what it printed and told."""

    def call(command, *arguments, status=0):
        assert cli.run([command, str(tmp_path / "lake"), *map(str, arguments)]) == status
        told = capfd.readouterr()
        return told.out + told.err

    return call
