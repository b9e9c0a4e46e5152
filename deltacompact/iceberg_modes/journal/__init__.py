"""Journals: what a session of any mode planned, wrote and tried to commit; and how dead sessions are resumed."""
