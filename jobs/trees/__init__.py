"""Trees of files as they travel: manifests and bundles, which coordinators and workers read and write alike."""
