"""From a message to ended sessions: accept, claim, plan, launch, follow, end; and take over from silent dispatchers.

dispatcher     threads for messages, claims and job runs; start here     means         planner, launcher, settings, …
intake         makes job runs of messages                                expiry        removes old job runs
open_job_runs  which of them may be claimed now
job_run_work   one job run, from its claim to its end                    planned       records planned sessions
group_work     launches a group and follows it                           held_group    the state of a group
attempts       the next attempt, once no earlier one can publish         retries       what follows a failed try
admission      which groups may start now                                delays        records why a session waits
forecast       how long a job run will take                              looks         how far its sessions are
log_keeper     keeps the logs of groups                                  asking        asks a store that may not answer
showing        shows in a published table what was compacted
"""
