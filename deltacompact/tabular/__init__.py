"""Rows in files of any format: reading, writing, schemas, and copying row groups without decoding them."""
