"""Planning: the resources of a session, its time and cost, when it starts, and why.

gather      reads a table: log, index manifest, footers -> PartitionStatistics
branches    reads the manifests of an Iceberg branch -> BranchStatistics
plan        statistics, offers, rates, desired SLA -> one SessionPlan for each partition, grouped
situation, candidates, choices      what a plan depends on; the ways to run a session; why one was chosen
remedies    what would keep a desired SLA that cannot be promised
rates       times of past sessions -> CPU and wall seconds of the next one
observations, parts      what is remembered of a session; the groups of its stages
fitting, expectation     factors by least squares; what a session will take
bounds      errors of past estimates -> the 90 % interval and the promise
refine      a plan and its session's progress -> seconds of the whole session
admission   waiting and running groups -> which groups start now, and why the others wait
turns       which job runs may begin: one at a time on a stream
starts      how long groups take to start, kept like the rates
learning    keeps the rates beside the job runs, replaced by compare-and-swap
planner     from an instruction document to plans

Only gather, branches, planner, learning and starts touch a store; the others are pure.
"""
