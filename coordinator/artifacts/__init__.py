"""Artifacts: trees of files by their SHA-256, uploaded and fetched over the API; bytes lie under ARTIFACT_URL."""
