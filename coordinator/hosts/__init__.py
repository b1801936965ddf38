"""Hosts: machines by the workers that run there, and how another one joins with an invitation."""
