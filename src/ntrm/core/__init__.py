"""What every other package stands on: errors, labels, µm/px, files, processes, devices, progress."""
