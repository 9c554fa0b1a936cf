"""Faust, hardened, over either log: the only room that imports Faust."""
