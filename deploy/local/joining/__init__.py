"""Machines that join a cluster elsewhere: invitations, certificates, membership."""
