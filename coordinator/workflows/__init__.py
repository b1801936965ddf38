"""Workflows: graphs of actions that are validated at submission and executed by the leader."""
