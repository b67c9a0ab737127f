"""The engine in process: the source systems' classes and functions over a caller's own messages."""
