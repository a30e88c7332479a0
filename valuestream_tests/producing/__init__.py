"""Handing deliveries over."""
