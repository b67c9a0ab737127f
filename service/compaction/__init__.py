"""Summaries of older history, made when the answers are out."""
