"""Tenants, which share the cluster by weights and caps."""
