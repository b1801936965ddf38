"""The `cluster` command: parsing of arguments, state of a running command, and output for people."""
