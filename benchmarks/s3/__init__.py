"""deltacompact on S3 beside local files: see README.md.

scenarios.py            what is measured: full compactions, a few rows, appends, one of many partitions, all of them
places.py               where: local files; an S3 server; the same server with latency
measuring.py            each scenario at each place, in a process of its own: measurements
report.py goals.py      medians and ratios; what is wanted beside what was measured
cli.py                  python -m benchmarks s3
proxy_process.py        the proxy in a process of its own; tests use it too
proxy.py http.py        it forwards, delays, paces and counts
requests.py faults.py   what a request is and costs; what happens to it by a seeded rule
"""
