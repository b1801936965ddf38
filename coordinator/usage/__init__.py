"""What tenants used, by day."""
