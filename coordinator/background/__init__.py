"""Background work of a coordinator: periodic tasks, the leader's duties, and rewrites of Redis' append-only file."""
