"""Which Ray cluster to join: a question for which nobody needs to import ray."""

from __future__ import annotations

import os

from deltacompact.base.settings import DEFAULTS, Settings


def address_of(settings: Settings = DEFAULTS) -> str | None:
    """The address of the cluster to join; None: start one on this machine."""
    address = settings.ray_address or os.environ.get("RAY_ADDRESS")
    return address if address and address != "local" else None
