"""Tenants: tokens, caps, usage, secrets and the audit log."""
