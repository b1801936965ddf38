"""The audit log: who changed what, and what was denied; its export to a file."""
