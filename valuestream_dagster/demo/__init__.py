"""The main job on real data: what producers do in two months, and what valuestream makes of it. ``make demo`` runs it."""
