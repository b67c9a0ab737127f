"""Prompts in files: loaders, facts about the machine, and the watch over what was loaded."""
