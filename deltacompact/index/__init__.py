"""Maps each key to its live row: key bytes, entries, sorted runs, live bitmaps, and remaps of rewritten files."""
