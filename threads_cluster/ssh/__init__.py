"""Access to the hosts of cluster.yaml over SSH."""
