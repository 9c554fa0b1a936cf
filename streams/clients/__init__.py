"""Engines that other programs run, called over HTTP by public protocols."""
