"""What plans are compared with: today's schedules on published splits."""
