"""The work: Faust agents and tables, audio framing, engines and the embedded log."""
