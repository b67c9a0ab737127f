"""Compaction over real conversations, replayed turn by turn."""
