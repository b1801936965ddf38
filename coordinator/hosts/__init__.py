"""Hosts: machines that run workers, and the exchange of invitations for tokens."""
