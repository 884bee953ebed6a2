"""The HTTP side of the service: routes, documents, errors, who may come in."""
