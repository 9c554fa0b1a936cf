"""From audio to scored windows: decoding, resampling, log-mel frames, framing and the analysis of one stream."""
