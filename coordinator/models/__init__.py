"""HTTP API of models and chunks of data: their locations, and the workflows that copy them."""
