"""`python -m client` is the `cluster` command."""

from client.cli import main

main()
