"""Rank passages of a conversation by what they tell about a question; no model, and no I/O."""
