"""Worker API over HTTP, for workers without access to Redis. It exposes the calls of `jobs/store`."""
