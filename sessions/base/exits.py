"""How the process of a group ends."""

from __future__ import annotations

EXIT_ENDED = 0
"""Every session of the group has ended: succeeded, failed for good, or had nothing to do."""
EXIT_AGAIN = 75
"""A session is to be tried again."""
EXIT_SUPERSEDED = 76
"""The group is no longer ours."""
EXIT_TERMINATED = 143
"""By SIGTERM: the next attempt resumes."""
