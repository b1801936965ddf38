"""Machines that join the cluster of another machine: invitations, certificates and membership."""
