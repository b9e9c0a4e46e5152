"""Exit statuses of a group's process."""

from __future__ import annotations

EXIT_ENDED = 0
"""Every session of the group has ended: succeeded, failed for good, or had nothing to do."""
EXIT_AGAIN = 75
"""A session of the group must be tried again."""
EXIT_SUPERSEDED = 76
"""The group belongs to another dispatcher now."""
EXIT_TERMINATED = 143
"""SIGTERM ended the process: the next attempt resumes."""
