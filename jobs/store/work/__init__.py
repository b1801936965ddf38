"""Jobs and leases: submission, slots, leases, results and output."""
