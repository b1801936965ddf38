"""Artifacts: trees of files identified by SHA-256, with uploads and downloads. The bytes are stored at ARTIFACT_URL."""
