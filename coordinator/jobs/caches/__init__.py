"""What a replica read last of workers, units and owners, for a bounded time."""
