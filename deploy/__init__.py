"""Programs that start clusters in containers, on Kubernetes, or as processes on one machine."""
