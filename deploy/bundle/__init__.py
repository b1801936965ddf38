"""Bundles: archives with all packages of a cluster, for machines without a network."""
