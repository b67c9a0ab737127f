"""Prompts from files: loaders, and a watch that reads changed files again."""
