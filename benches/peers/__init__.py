"""Times hipvit and its peers on one device, side by side. See __main__.py."""
