"""Tenants: API tokens, limits, usage, secrets and the audit log."""
