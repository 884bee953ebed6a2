"""What the requests of one service share: settings, state, paths, disk, audit."""
