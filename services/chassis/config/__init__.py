"""Configuration: read from a folder and checked as a whole, published as revisions, followed by every service."""
