"""What several chapters train on."""
