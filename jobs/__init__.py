"""What every service shares: jobs, kinds, leases. Knows no service."""
