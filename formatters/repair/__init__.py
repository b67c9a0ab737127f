"""Any history as a sequence that APIs take: which result answers which call, and what is mended."""
