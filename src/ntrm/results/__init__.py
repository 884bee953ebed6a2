"""The one reader and writer of a results folder: names of files, documents, tables, what a slide's folder remembers."""
