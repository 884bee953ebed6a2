"""The commands: each parses, makes one call and prints."""
