"""Start clusters in containers, on Kubernetes, or as processes of one machine."""
