"""What several chapters train."""
