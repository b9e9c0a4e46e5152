"""From a message to ended sessions: accept, claim, plan, launch, follow, end; and take over from who fell silent.

dispatcher     threads for messages, claims and job runs; start here     means         what it works with
intake         a message becomes a job run                               expiry        old job runs go
job_run_work   one job run, from its claim to its end                    planned       its sessions are recorded
group_work     a group is launched and followed                          held_group    what is known of it
attempts       the next attempt, once no earlier one can publish         retries       what follows a try in vain
admission      who starts now                                            delays        who waits is told why
forecast       what a job run will take                                  looks         how far its sessions are
log_keeper     what groups print is kept                                 asking        a store that may not answer
"""
