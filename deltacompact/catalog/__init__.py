"""Catalogs of tables. Each kind has a room of its own."""
