"""Where tasks run: in this process, or on Ray, of which this room is the only door."""
