"""The paper's figures 3-1 to 3-5 in our numbers: job runs over input size x hash buckets x vCPUs, here or on EC2.

points.py     what is run: (16 M rows, 64 hash buckets, 32 vCPUs), and what came of it: a JobRun
table.py      the table of a size, made once on the cluster's workers or by Spark, and what its compaction must come to
job.py        one job run on the cluster that it finds: table, compaction, check -> job-….json    (benchmarks job)
bills.py      what a cluster costs, by sessions/planning/prices.toml
cluster.py    cluster.yaml rendered for so many vCPUs
commands.py   the commands of a whole run: ray up, one job run after another, ray down        (benchmarks ec2, local)
figures.py    the figures, drawn
report.py     report.md, report.json: figures, cost per TB, success rate, and the model
"""
