"""Secrets of tenants for their programs. The API sets, lists and deletes them, but never returns their values."""
