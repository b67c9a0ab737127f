"""Compaction: summaries of older history, made after answers are sent."""
