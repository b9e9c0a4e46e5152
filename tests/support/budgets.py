"""How many examples hypothesis looks at: fewer while somebody waits, more at night.

DELTACOMPACT_EXAMPLES    examples of a test that asks for 100
quick                    10       what `make quick` sets
(nothing)                50       what `make test` does
nightly                  2,000
"""

from __future__ import annotations

import os

FACTORS = {"quick": 0.1, "": 0.5, "nightly": 20.0}
FACTOR = FACTORS[os.environ.get("DELTACOMPACT_EXAMPLES", "")]


def examples(many: int) -> int:
    """So many examples, where nobody waits and it is no night."""
    return max(3, round(many * FACTOR))
