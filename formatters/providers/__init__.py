"""The canonical messages as the bodies that each provider's API takes."""
