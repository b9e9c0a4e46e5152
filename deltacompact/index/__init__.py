"""Where each key's live row is: key bytes, entries, sorted runs, live bitmaps and remaps of rewritten files."""
