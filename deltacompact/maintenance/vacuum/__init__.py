"""Vacuum deletes what nothing reaches. It works in this order:

vacuum           the driver; start here
listing          list the objects                               mark      what need not be read again
chain            the versions that seals lead to                reach     what they reach
held             what published Iceberg snapshots refer to      fences    sessions that may still publish
logs             logs of attempts that lost, old checkpoints
contradictions   signs that somebody else removed or wrote entries: nothing is deleted then
"""
