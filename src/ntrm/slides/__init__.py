"""Which slides there are: in files, folders, tables and at addresses (``s3://…``); their ids; a local cache of them."""
