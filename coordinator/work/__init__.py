"""Work for workers that reach the coordinators alone: the calls of `jobs/store` over HTTP, one token a worker."""
