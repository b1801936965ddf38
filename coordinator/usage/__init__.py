"""Usage of tenants by day."""
