"""How facts are shown: pure functions from facts to blocks, and from blocks to messages."""
