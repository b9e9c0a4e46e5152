"""The mode `rewrite`: files are read with all their deletes, and written anew without them."""
