"""Vacuum deletes objects that no retained version reaches.

vacuum           the driver; start here
listing          the objects of a stream                        mark      what the next vacuum need not read again
chain            the versions that seals lead to                reach     the objects that these versions need
context          files that publications and bookmarks need, objects of bookmarks that were replaced
logs             logs of attempts that lost, old checkpoints     fences    sessions that may still publish
contradictions   signs that somebody else removed or wrote entries: vacuum then deletes nothing
"""
