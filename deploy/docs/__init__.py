"""The documentation site: MkDocs hooks that add the generated reference and make pages work without other hosts."""
