"""What an application needs to test its own handlers."""
