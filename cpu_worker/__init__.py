"""The CPU worker: a parent that leases, beats and commits, and child processes that compute."""
