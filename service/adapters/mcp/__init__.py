"""Tools that servers list over MCP; they are never called here."""
