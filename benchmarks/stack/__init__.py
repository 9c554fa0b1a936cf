"""What a good engineer builds in a week for the same few requests, without exactness: the contender `stack`."""
