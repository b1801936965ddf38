"""Caches of recent Redis reads of workers, units and job owners."""
