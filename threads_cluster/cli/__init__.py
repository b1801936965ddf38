"""The `cluster` command: argument parsing, shared state of a command, and output for people."""
