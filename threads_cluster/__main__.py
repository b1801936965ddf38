"""Run the `cluster` command as `python -m threads_cluster`."""

from threads_cluster.cli.main import main

main()
