"""Vision side: image intake, feature cache, pruning, and the pocket model."""
