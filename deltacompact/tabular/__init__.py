"""Rows in files of any format: reading, writing, schemas, and row groups that are copied as they are encoded."""
