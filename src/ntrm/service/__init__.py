"""HTTP service and page: slides in over HTTP, results and tiles out; jobs in SQLite, one worker process per device."""
