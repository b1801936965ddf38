"""Hosts that are reached over SSH: those of cluster.yaml."""
