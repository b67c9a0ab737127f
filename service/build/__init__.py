"""The parts of one build: plan, gather, blocks, report."""
