"""How many examples hypothesis tries: few while somebody waits for the tests, many at night.

DELTACOMPACT_EXAMPLES    examples of a test that asks for 100
quick                    10       what `make quick` sets; 3 at least
(nothing)                25       what `make test` does; 4 at least
whole                    100
nightly                  2,000
"""

from __future__ import annotations

import os

FACTORS = {"quick": (0.1, 3), "": (0.25, 4), "whole": (1.0, 4), "nightly": (20.0, 4)}
FACTOR, AT_LEAST = FACTORS[os.environ.get("DELTACOMPACT_EXAMPLES", "")]


def examples(many: int) -> int:
    """The number of examples to try, for a test that tries `many` of them in a whole run."""
    return max(AT_LEAST, round(many * FACTOR))
