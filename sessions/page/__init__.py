"""One page on loopback: job runs, sessions on a time line, what was expected, and why each session was planned so."""
