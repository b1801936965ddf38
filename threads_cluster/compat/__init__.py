"""Commands and classes under the names that other systems use."""
