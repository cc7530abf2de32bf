"""One replica put together: settings, start order, periodic duties, shutdown."""
