"""Faust, hardened, and the two logs behind it: the only part of the project that imports Faust."""
