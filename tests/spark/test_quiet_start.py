"""What a process says while it starts is told if it fails; what it says later is told anyway."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

from deltacompact.spark import quiet_start

pytestmark = pytest.mark.processes

_STARTS = """
    import subprocess, sys
    from deltacompact.spark.quiet_start import said_if_it_fails

    with said_if_it_fails():
        said = "echo ':: loading settings' >&2; read line; echo later >&2"
        child = subprocess.Popen(["sh", "-c", said], stdin=subprocess.PIPE)
        import time; time.sleep(0.3)
        {end}
    child.communicate(b"go on\\n")
    import time; time.sleep(0.3)
    print("own", file=sys.stderr)
"""


@pytest.mark.parametrize(("end", "told"), [("pass", "later\nown\n"), ("raise SystemExit(3)", ":: loading settings\n")])
def test_what_is_told(end, told):
    program = textwrap.dedent(_STARTS).format(end=end)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stderr == told and done.returncode == (0 if end == "pass" else 3)


def test_what_nobody_has_read_yet_when_spark_is_there_is_held_back_too():
    """The thread that reads may not have had a turn: on a busy machine, what Java says of itself was told."""
    (reading, writing), (real_reading, real_writing) = os.pipe(), os.pipe()
    relay = quiet_start._Relay(reading, real_writing)
    os.write(writing, b"WARNING: Using incubator modules: jdk.incubator.vector\n")
    relay.tell(with_held=False)
    os.write(writing, b"ERROR TaskSetManager\n")
    os.close(writing)
    relay.run()
    os.close(real_writing)
    with open(real_reading, "rb") as told:
        assert told.read() == b"ERROR TaskSetManager\n"
