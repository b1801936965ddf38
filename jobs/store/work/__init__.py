"""Jobs and leases: submission, slots, leases, results, output."""
