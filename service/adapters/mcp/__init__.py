"""Tools that servers list over MCP; nothing here ever calls one."""
