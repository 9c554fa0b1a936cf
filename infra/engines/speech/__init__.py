"""Speech to text: the endpoint, and the processes that run Whisper."""
