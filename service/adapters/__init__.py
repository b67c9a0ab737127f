"""The adapters, a package or module for each kind; `openers` has those that settings choose."""
