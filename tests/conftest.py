"""What all tests of ourselves share: pytest's own fixture for testing plugins."""

pytest_plugins = ["pytester"]
