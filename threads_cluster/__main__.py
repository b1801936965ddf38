"""`python -m threads_cluster` is the `cluster` command."""

from threads_cluster.cli import main

main()
