"""Background work of a coordinator: its threads, the leader's periodic work, and care of Redis' append-only file."""
