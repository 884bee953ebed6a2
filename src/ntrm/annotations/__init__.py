"""Areas drawn in QuPath become a dataset: GeoJSON → pixels of the slide → images and masks."""
