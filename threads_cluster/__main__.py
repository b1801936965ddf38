"""Entry point of `python -m threads_cluster`, which runs the `cluster` command."""

from threads_cluster.cli.main import main

main()
