"""What a worker tells over HTTP about itself."""
