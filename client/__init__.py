"""Talk to a cluster from Python (`client.api.Cluster`) or from a shell (`cluster`, `client.cli`). HTTP only."""
