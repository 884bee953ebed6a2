"""Whether a slide is fit for the network: a scan, stained with H&E, in focus, flat and unmarked."""
