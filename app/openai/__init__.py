"""OpenAI's interface to speech: a recording in, its text out, by way of a job."""
