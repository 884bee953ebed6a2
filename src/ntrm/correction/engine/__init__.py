"""What decides what follows when a person names something."""
