"""Submitting jobs, steering them, and what they answer."""
