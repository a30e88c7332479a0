"""How fast the safe way is, as ratios against the unsafe one, measured side by side in one run. No assertion; people judge."""
