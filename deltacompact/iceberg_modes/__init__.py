"""The modes that compact a branch of an Iceberg table while others write to it.

driver           one call of a mode                 look for dead sessions, plan, resume, sessions, plan again
modes            the list of all modes              a new mode is a folder and a line here
mode, steps      what a mode is                     a value; what the driver asks of it
session          the work of one plan               written and committed under a journal
rewrite          the mode `rewrite`                 options, plan, outputs, validation
convert          the mode `convert`                 options, plan, which marks are still true
upsert           the mode `upsert`                  options, columns, plan, comparison by tasks, validation
maintain         small metadata                     expire snapshots, rewrite manifests, remove orphans
journal          sessions of any mode               what they planned and wrote; signs of life; dead ones are resumed
options          how a mode declares its options       readers         the engine that must read what is written
plan_envelope    what plans have in common as JSON
expected         how long a plan is expected to take
result, words    what all results count, and say
compacted        when we compacted a branch
watching         counts and sizes of a branch, for triggers
advising         how files lie by some columns, what clustering would bring, and cost; what policies would have
"""
