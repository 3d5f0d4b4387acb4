"""Values in, strings out. Views read no file, no clock and no environment; every percentage that a person sees is made here."""
