"""Daily usage of tenants."""
