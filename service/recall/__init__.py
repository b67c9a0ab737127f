"""Rank passages of a conversation by their relevance to a question, without a model or I/O."""
