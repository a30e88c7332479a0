"""Facts of others' software that decisions rest on; an upgrade that changes one says so here."""
