"""Workflow documents: parsing, validation, references, and expansion of model and data actions into steps."""
