"""What a session of any mode plans, has written and tries to commit; and what becomes of sessions that died."""
