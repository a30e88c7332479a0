"""From an arrival in a landing place to checked bytes in our own store: discover, complete, seal, validate."""
