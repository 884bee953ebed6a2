"""The one reader and writer of a results folder."""
