"""Texts of workflows: parsing, validation, references, and steps of actions about models and data."""
