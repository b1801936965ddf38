"""Audit log: changes by principals, counts of denied requests, and the export to a file."""
