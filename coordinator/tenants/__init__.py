"""Tenants: the API's domain of who shares the cluster."""
