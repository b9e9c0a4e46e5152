"""Which rows are dead: deletes matched to data files, keys digested, live bitmaps made."""
