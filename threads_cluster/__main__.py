"""`python -m threads_cluster` is the `cluster` command."""

from threads_cluster.cli.main import main

main()
