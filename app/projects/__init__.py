"""What a project sees and changes of itself."""
