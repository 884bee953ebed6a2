"""What web process and workers both need: settings, paths, errors as answers, disk, audit."""
