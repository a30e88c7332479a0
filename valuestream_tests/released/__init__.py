"""State folders as released versions left them, one archive per ledger schema; ``test_released`` opens each with this program."""
