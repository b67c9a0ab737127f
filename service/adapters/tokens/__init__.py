"""Tokenizers, and what makes counting with them fast."""
