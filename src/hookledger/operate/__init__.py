"""What a person may see and do."""
