"""The HTTP side of the service: routes, uploads, schemas, shared state, who may come in."""
