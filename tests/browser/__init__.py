"""The pages of a gateway in a real browser: `make browser-test`."""
