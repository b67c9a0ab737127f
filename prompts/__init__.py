"""The system's own texts: its identity, the description of its tools, and prompts for summaries."""
