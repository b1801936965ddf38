"""The `cluster` command: parsing, shared state of a run, and output for people."""
