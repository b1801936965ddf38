"""Models and data over HTTP: what there is, where it lies, and the workflows that bring it there."""
