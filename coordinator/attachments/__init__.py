"""Attachments: interactive shells in the environment of running programs."""
