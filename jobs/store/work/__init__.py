"""Jobs and leases in Redis: submission, slots of workers, leases, results and output."""
