"""Workflows: graphs of actions, validated as a whole, submitted as jobs, and seen through by the leader."""
