"""What runs the cluster on one machine."""
