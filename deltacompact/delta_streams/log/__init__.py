"""The log of one stream: a chain of entries, each put once.

log           the versions of one stream: read, commit, switch; start here
entries       entries in JSON                                   effects       entries in words
state         the state after some entries                      objects       the objects of a log
checkpoints   many entries as one object                        tokens        commit a batch only once
heads         the end of a log in one object: pure              stored_head   that object on its store
"""
