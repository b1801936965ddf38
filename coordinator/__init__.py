"""The coordinator: a stateless HTTP server over Redis. Any number of replicas can run."""
