"""An example of each message of the wire."""
