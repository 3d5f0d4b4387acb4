"""Values in, strings out. Reads no file, no clock, no environment; every percentage that a person sees is made here."""
