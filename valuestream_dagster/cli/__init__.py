"""The command line: verbs, words and documents. It asks ``deployment``; it decides nothing about deliveries."""
