"""Support for machines that join a cluster elsewhere: invitations, certificates and membership."""
