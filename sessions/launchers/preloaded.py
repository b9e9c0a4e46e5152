"""What the fork server imports, so that no group of sessions has to: each starts in milliseconds."""

from deltacompact.base.without_pandas import forgo_pandas

forgo_pandas()

import deltacompact.compact  # noqa: E402
import deltacompact.executors.local  # noqa: E402, F401
import sessions.runner.group  # noqa: E402, F401
