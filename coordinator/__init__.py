"""The coordinator: HTTP in, leases in Redis, events out. Stateless; any number of replicas."""
