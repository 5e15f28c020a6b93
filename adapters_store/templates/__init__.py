"""Prompt templates, which are programs of somebody else's."""
