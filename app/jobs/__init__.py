"""Jobs over HTTP: whole recordings in, one entry per service out."""
