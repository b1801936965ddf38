"""The cluster's gRPC API, which forwards calls to the HTTP application in the same process."""
