"""Secrets of tenants for their programs: set, listed and deleted over the API, never answered by it."""
