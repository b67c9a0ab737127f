"""The laws of every context, over real conversations."""
