"""The documentation site: hooks of MkDocs that add the generated reference, and make pages work without other hosts."""
