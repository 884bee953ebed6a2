"""Slides and their jobs: database, intake, supervisor, worker."""
