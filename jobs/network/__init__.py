"""Addresses and connections: of Redis, of what a process serves, and through tunnels."""
