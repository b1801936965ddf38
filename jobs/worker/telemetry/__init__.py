"""Measurements of a worker's host and devices, and recordings for profiles."""
