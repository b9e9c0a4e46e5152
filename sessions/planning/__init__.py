"""Planning: what a session runs on, what that takes, when it starts, and why. Only gather and learning touch a store.

gather      reads a table: log and index manifest -> PartitionStatistics
plan        statistics, offers, rates, desired SLA -> one SessionPlan for each partition, grouped
remedies    what would keep a desired SLA that cannot be promised
rates       what sessions of the past took -> CPU and wall seconds of the next one
bounds      how far they were off -> the 90 % interval and the promise
refine      a plan and how far its session is -> what it takes in all
admission   who waits and what runs -> who starts now, and why each other one waits
turns       which job runs may begin: one at a time on a stream
starts      what a group takes besides its sessions, kept like the rates
learning    keeps the rates beside the job runs, replaced by compare-and-swap
planner     from an instruction document to plans
"""
