"""Analyses audio in separate processes, so that nothing competes with the event loop for its interpreter."""
