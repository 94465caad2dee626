"""What a request may ask of a server with mmspec, and how the answer comes back: statistics, no drafting."""
