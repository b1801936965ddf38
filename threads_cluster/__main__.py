"""Entry point of `python -m threads_cluster`, which runs the `cluster` command."""

from threads_cluster.entry_points import cluster

cluster()
