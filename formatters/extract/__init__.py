"""Summaries made of the conversation's own sentences, without a model."""
