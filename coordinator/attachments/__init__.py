"""Attachments: shells that people have beside running programs."""
