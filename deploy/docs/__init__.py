"""Documentation site: MkDocs hooks that generate the reference and make pages work without other hosts."""
