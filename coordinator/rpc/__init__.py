"""The cluster over gRPC: calls are handed to the application in this process, as if they had come by HTTP."""
