"""A kind whose kernel crashes, hangs or raises on request."""
