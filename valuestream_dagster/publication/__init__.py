"""From checked bytes to what readers see, in an order that is safe at every step."""
