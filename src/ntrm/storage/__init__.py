"""Slides and results at an address (``s3://…``): objects listed, fetched, sent; a local cache of slides."""
