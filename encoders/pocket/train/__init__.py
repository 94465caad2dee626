"""How the pocket VLM was trained: tower, reader and join, each resumable."""
