"""What people declare in YAML, read strictly and turned into core values: feeds and the deployment's settings."""
